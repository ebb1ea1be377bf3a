package prefetch

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
)

// perSecond drains a unit of 10 credits a second. It has a prefetch of 100 units, for a second.
var perSecond = law.Params{
	Kind: law.Bucket, Unit: 10, Capacity: 10_000, Step: 1_000_000, Drain: 10,
	Prefetch: 1000, PrefetchLife: 1_000_000,
}

// charge returns a take that costs some credits.
func charge(p law.Params, cost int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p, Cost: cost, Count: 1,
	}
}

// storeLead is how far the store's clock is ahead of the process's clock, in microseconds.
const storeLead = 1_000_000_000

// process holds tokens of a cell, at a time of its own clock.
type process struct {
	t      *testing.T
	tokens *localTokens
	now    int64
	cell   law.State // in the store
}

func newProcess(t *testing.T, p law.Params) *process {
	t.Helper()
	return &process{t: t, tokens: &localTokens{params: p}, now: 5000}
}

// fetch requests a cost that the tokens do not cover, and takes count charges of it from the cell. It returns the
// outcome of all charges, and the outcome of the caller's own charge.
func (p *process) fetch(cost, count int64) (total, own law.Outcome) {
	p.t.Helper()
	op := charge(p.tokens.params, cost)
	if _, _, c, _ := p.tokens.request(&op, p.now); c < 1 {
		p.t.Fatalf("a request of %d credits got count %d, want 1 at least", cost, c)
	}
	op.Count, op.Partial = count, count > 1
	total = law.Decide(p.cell, &op, p.now+storeLead, 0, nil).Outcome
	p.cell = total.State
	return total, p.tokens.finishFetch(&op, &total, p.now)
}

// mustHold fails the test unless the tokens are worth exactly so many credits. It hands them out.
func (p *process) mustHold(credits int64) {
	p.t.Helper()
	if _, ok := p.tokens.handOut(&p.tokens.params, credits+1, p.now); ok {
		p.t.Errorf("%d credits were handed out, want %d at most", credits+1, credits)
	}
	if credits == 0 {
		return
	}
	if _, ok := p.tokens.handOut(&p.tokens.params, credits, p.now); !ok {
		p.t.Errorf("%d credits were not handed out", credits)
	}
}

// TestOutcomeOfALocalCharge checks that it is the store's last outcome, at the present time, less the unused credits.
func TestOutcomeOfALocalCharge(t *testing.T) {
	p := newProcess(t, perSecond)
	p.fetch(9950, 1)
	p.now += 10
	total, own := p.fetch(10, 8) // (10,000 - 9950) / 10: there is room for five
	if total.Granted != 5 || total.RetryAt == 0 || own.Granted != 1 || own.Used != 9960 {
		t.Fatalf("got own outcome %+v of %+v; want one of five, with 9960 used", own, total)
	}
	p.now += 100
	out, ok := p.tokens.handOut(&p.tokens.params, 10, p.now)
	want := law.Outcome{
		Granted: 1, Used: 9970, Clock: total.Clock + 100, State: total.State, Via: law.ViaPrefetch,
	}
	if !ok || out != want {
		t.Errorf("got %+v\nwant %+v", out, want)
	}
}

func TestHandOutGrantsWhatIsHeld(t *testing.T) {
	otherParams := perSecond
	otherParams.Drain++
	for name, c := range map[string]struct {
		prepare func(*localTokens)
		p       law.Params
		cost    int64
		after   int64 // microseconds since the fetch of 10 + 40 credits
		want    bool
	}{
		"all that is held":       {nil, perSecond, 40, 0, true},
		"a credit of it":         {nil, perSecond, 1, 0, true},
		"a credit more":          {nil, perSecond, 41, 0, false},
		"a cost of nothing":      {nil, perSecond, 0, 0, false},
		"a cost below nothing":   {nil, perSecond, -1, 0, false},
		"at the end of its life": {nil, perSecond, 10, perSecond.PrefetchLife, false},
		"a microsecond before":   {nil, perSecond, 10, perSecond.PrefetchLife - 1, true},
		"of another limit":       {nil, otherParams, 10, 0, false},
		"after a reset":          {(*localTokens).discard, perSecond, 10, 0, false},
		"given back before":      {func(l *localTokens) { l.giveBack(5000, nil) }, perSecond, 10, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, perSecond)
			p.fetch(10, 5)
			if c.prepare != nil {
				c.prepare(p.tokens)
			}
			out, ok := p.tokens.handOut(&c.p, c.cost, p.now+c.after)
			if ok != c.want || ok && (out.Granted != 1 || out.Used != 10+c.cost) || !ok && out != (law.Outcome{}) {
				t.Errorf("got %v, %+v; want %v", ok, out, c.want)
			}
		})
	}
}

// TestGiveBackOfTwoFetches fetches 20 and 60 credits, hands some out, and checks how much of each is given back.
func TestGiveBackOfTwoFetches(t *testing.T) {
	for name, c := range map[string]struct {
		costs      []int64 // handed out
		after      int64   // microseconds since the second fetch
		wantFirst  int64   // credits of the first fetch that are given back
		wantSecond int64
	}{
		"all":                            {nil, 0, 20, 60},
		"the oldest pays first":          {[]int64{1, 2}, 0, 17, 60},
		"nothing of what is used up":     {[]int64{20}, 0, 0, 60},
		"a charge of both":               {[]int64{13, 8}, 0, 0, 59},
		"not what has ended":             {[]int64{1}, 900_000, 0, 60},
		"of the second, after the first": {[]int64{1, 22}, 0, 0, 57},
		"none":                           {[]int64{80}, 0, 0, 0},
		"none, for all has ended":        {nil, 1_000_000, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, perSecond)
			first, _ := p.fetch(10, 3)
			p.now += 100_000
			second, _ := p.fetch(30, 3) // 30 is more than the 20 credits of the first
			for _, cost := range c.costs {
				if _, ok := p.tokens.handOut(&p.tokens.params, cost, p.now); !ok {
					t.Fatalf("%d credits were not handed out", cost)
				}
			}
			var want []law.Op
			addReturn := func(cost int64, out *law.Outcome, credits int64) {
				if credits > 0 {
					op := charge(perSecond, cost)
					back := law.Back(&op, out, credits)
					back.Group = uint32(len(want) + 2)
					want = append(want, back)
				}
			}
			addReturn(10, &first, c.wantFirst)
			addReturn(30, &second, c.wantSecond)
			otherOps := []law.Op{{Verb: law.Return, Group: 1}} // of another cell
			got := p.tokens.giveBack(p.now+c.after, otherOps)[1:]
			if len(got) != len(want) {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("got %+v\nwant %+v", got[i], want[i])
				}
			}
			if ops := p.tokens.giveBack(p.now, nil); len(ops) > 0 {
				t.Errorf("a second giveBack: got %+v, want no ops", ops)
			}
		})
	}
}

// TestGiveBackWithoutTokens checks that giveBack returns no op after a fetch of one charge, or after discard.
func TestGiveBackWithoutTokens(t *testing.T) {
	p := newProcess(t, perSecond)
	p.fetch(10, 1)
	if back := p.tokens.giveBack(p.now, nil); len(back) > 0 {
		t.Errorf("got %+v, want no ops", back)
	}
	p = newProcess(t, perSecond)
	p.fetch(10, 5)
	p.tokens.discard()
	if back := p.tokens.giveBack(p.now, nil); len(back) > 0 {
		t.Errorf("after discard: got %+v, want no ops", back)
	}
}

// TestRequestFetchesWaitsOrHandsOut checks which caller fetches, which one waits for that, and which one gets tokens.
func TestRequestFetchesWaitsOrHandsOut(t *testing.T) {
	p := newProcess(t, perSecond)
	op := charge(perSecond, 10)
	out, wait, count, discarded := p.tokens.request(&op, p.now)
	if out != (law.Outcome{}) || wait != nil || count != 1 || discarded {
		t.Errorf("the first: got %+v, %v, %d, %v; want to fetch 1", out, wait, count, discarded)
	}
	out, wait, count, discarded = p.tokens.request(&op, p.now)
	if out != (law.Outcome{}) || wait == nil || count != 0 || discarded {
		t.Errorf("the second: got %+v, %v, %d, %v; want to wait", out, wait, count, discarded)
	}
	p.tokens.failFetch(nil)
	p.fetch(10, 2)
	out, wait, count, discarded = p.tokens.request(&op, p.now)
	if out.Granted != 1 || wait != nil || count != 0 || discarded {
		t.Errorf("after a fetch of 2: got %+v, %v, %d, %v; want a local charge", out, wait, count, discarded)
	}
	p.tokens.discard()
	out, wait, count, discarded = p.tokens.request(&op, p.now)
	if out != (law.Outcome{}) || wait != nil || count != 0 || !discarded {
		t.Errorf("after discard: got %+v, %v, %d, %v; want discarded", out, wait, count, discarded)
	}
}

// TestFinishFetch checks what an outcome of the store means for the fetcher, for the waiters and for the tokens. 20
// credits of an earlier fetch are held: the fetch of 5 charges of 30 adds 30 for each granted charge but one.
func TestFinishFetch(t *testing.T) {
	state := law.State{
		Kind: law.Bucket, Level: 700, At: storeLead, Unit: 10, Step: 1_000_000, EmptyAt: 2 * storeLead,
	}
	outcome := func(granted, retryAt int64) law.Outcome {
		return law.Outcome{Granted: granted, State: state, Used: 700, Clock: storeLead, RetryAt: retryAt}
	}
	failed, stale := outcome(0, 0), outcome(0, 0)
	failed.Err, stale.Stale = errors.New("failed"), true
	for name, c := range map[string]struct {
		out         law.Outcome
		granted     int64 // to the fetcher
		refusesMore bool  // waiters of the same cost are refused too
		held        int64 // credits after the fetch; 0: the tokens were discarded
	}{
		"an error":                {failed, 0, false, 20},
		"stale":                   {stale, 0, false, 20},
		"nothing":                 {outcome(0, 3*storeLead), 0, true, 20},
		"one of five":             {outcome(1, 3*storeLead), 1, true, 20},
		"two of five":             {outcome(2, 3*storeLead), 1, true, 50},
		"all":                     {outcome(5, 0), 1, false, 140},
		"all, but it has ended":   {outcome(5, 0), 1, false, 0},
		"some, but it has ended":  {outcome(2, 3*storeLead), 1, true, 0},
		"nothing, and it is over": {outcome(0, 3*storeLead), 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, perSecond)
			oldOutcome, _ := p.fetch(10, 3)
			oldSpent := p.tokens.spentCredits
			op := charge(perSecond, 30)
			p.tokens.request(&op, p.now)
			_, wait, _, _ := p.tokens.request(&op, p.now)
			if c.held == 0 {
				p.tokens.discard()
			}
			op.Count, op.Partial = 5, true
			p.now += 100
			own := p.tokens.finishFetch(&op, &c.out, p.now)
			want := c.out
			if c.granted > 0 {
				want = law.Split(&op, &c.out, 0)
			}
			if own != want || own.Granted != c.granted {
				t.Errorf("the fetcher: got %+v\nwant %+v", own, want)
			}
			select {
			case <-wait.done:
			default:
				t.Error("the waiters were not woken")
			}
			refusal := law.Outcome{}
			if c.refusesMore {
				refusal = c.out
				refusal.Granted = 0
			}
			smaller := charge(perSecond, 29)
			if wait.alsoRefuses(&op) != c.refusesMore || wait.alsoRefuses(&smaller) || wait.out != refusal {
				t.Errorf("the waiters: got refused %v, %+v; want %v", wait.alsoRefuses(&op), wait.out, c.refusesMore)
			}
			lastOutcome, sentAt, spent := oldOutcome, int64(5000), oldSpent
			if c.granted > 0 && c.held > 0 {
				lastOutcome, sentAt, spent = c.out, p.now, op.Cost
			}
			if p.tokens.out != lastOutcome || p.tokens.sentAt != sentAt || p.tokens.spentCredits != spent ||
				p.tokens.fetch != nil {
				t.Errorf("got %d credits spent since %d, last outcome %+v", p.tokens.spentCredits, p.tokens.sentAt, p.tokens.out)
			}
			p.mustHold(c.held)
		})
	}
}

// TestAFetchOfTwoCreditsLeavesOne checks that a fetch of two charges of one credit leaves one credit.
func TestAFetchOfTwoCreditsLeavesOne(t *testing.T) {
	p := newProcess(t, perSecond)
	p.fetch(1, 2)
	p.mustHold(1)
}

func TestLifeOfTokens(t *testing.T) {
	const life = 1_000_000
	for name, c := range map[string]struct {
		drain, clock, at, emptyAt int64
		want                      int64
	}{
		"what drains in part":                   {9999, storeLead, storeLead, storeLead + 7, life},
		"a window, to its end":                  {10_000, storeLead, storeLead - 100, storeLead + 7, 7},
		"a window that forgets more than it is": {10_001, storeLead, storeLead - 100, storeLead + 7, 7},
		"a window whose cell is ahead":          {law.Max, storeLead, storeLead + 5, storeLead + 7, 2},
		"a window that is longer than a life":   {law.Max, storeLead, storeLead, storeLead + 2*life, life},
	} {
		t.Run(name, func(t *testing.T) {
			p := perSecond
			p.Drain = c.drain
			out := law.Outcome{Clock: c.clock, State: law.State{At: c.at, EmptyAt: c.emptyAt}}
			if got := (&localTokens{params: p}).life(&out); got != c.want {
				t.Errorf("got %d µs, want %d", got, c.want)
			}
		})
	}
}

// TestSeveralGrantsExpireTogether checks that all grants whose life is over are dropped, and that the next one stays.
func TestSeveralGrantsExpireTogether(t *testing.T) {
	p := newProcess(t, perSecond)
	for _, cost := range []int64{10, 20, 40} { // each costs more than the tokens of the grants before it
		p.fetch(cost, 2)
		p.now += 100
	}
	p.now += 1_000_000 - 200 // the first two grants, of 300 and 200 µs ago, expire
	p.mustHold(40)
}
