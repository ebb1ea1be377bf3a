package prefetch

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/law"
)

// perSecond drains a unit of 10 credits a second. Up to 100 units are taken ahead, for a second.
var perSecond = law.Params{
	Kind: law.Bucket, Unit: 10, Capacity: 10_000, Step: 1_000_000, Drain: 10,
	Prefetch: 1000, PrefetchLife: 1_000_000,
}

func charge(p law.Params, cost int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p, Cost: cost, Count: 1,
	}
}

// ahead is how far the store's clock is ahead of the node's.
const ahead = 1_000_000_000

// node is a node in front of a cell, at a time of its own clock.
type node struct {
	t    *testing.T
	h    *localTokens
	now  int64
	cell law.State
}

func newNode(t *testing.T, p law.Params) *node {
	t.Helper()
	return &node{t: t, h: newLocalTokens(p), now: 5000}
}

// fetch asks for a cost that is not held, takes so many of it together from the cell, and returns the outcome of all
// and the caller's own.
func (n *node) fetch(cost, count int64) (all, mine law.Outcome) {
	n.t.Helper()
	op := charge(n.h.params, cost)
	if _, _, c, _ := n.h.request(&op, n.now); c < 1 {
		n.t.Fatalf("a cost of %d does not lead to the store", cost)
	}
	op.Count, op.Partial = count, count > 1
	all = law.Decide(n.cell, &op, n.now+ahead, 0, nil).Outcome
	n.cell = all.State
	return all, n.h.finishFetch(&op, &all, n.now)
}

// holds fails the test unless so many credits are held, and not one more.
func (n *node) holds(credits int64) {
	n.t.Helper()
	if _, ok := n.h.handOut(&n.h.params, credits+1, n.now); ok {
		n.t.Errorf("%d credits are held, not %d", credits+1, credits)
	}
	if credits == 0 {
		return
	}
	if _, ok := n.h.handOut(&n.h.params, credits, n.now); !ok {
		n.t.Errorf("%d credits are not held", credits)
	}
}

// TestAChargeIsPaidOutOfWhatIsHeld tells what the caller sees: what the store said last, at the present time, and
// without what is held still.
func TestAChargeIsPaidOutOfWhatIsHeld(t *testing.T) {
	n := newNode(t, perSecond)
	n.fetch(9950, 1)
	n.now += 10
	all, mine := n.fetch(10, 8) // there is room for five
	if all.Granted != 5 || all.RetryAt == 0 || mine.Granted != 1 || mine.Used != 9960 {
		t.Fatalf("%+v of %+v", mine, all)
	}
	n.now += 100
	out, ok := n.h.handOut(&n.h.params, 10, n.now)
	want := law.Outcome{
		Granted: 1, Used: 9970, Clock: all.Clock + 100, State: all.State, Via: law.ViaPrefetch,
	}
	if !ok || out != want {
		t.Errorf("got %+v\nwant %+v", out, want)
	}
}

func TestHandedOut(t *testing.T) {
	other, end := perSecond, perSecond.PrefetchLife
	other.Drain++
	for name, c := range map[string]struct {
		do    func(*localTokens)
		p     law.Params
		cost  int64
		after int64 // microseconds since 40 credits were taken ahead
		ok    bool
	}{
		"all that is held":       {nil, perSecond, 40, 0, true},
		"a credit of it":         {nil, perSecond, 1, 0, true},
		"a credit more":          {nil, perSecond, 41, 0, false},
		"a cost of nothing":      {nil, perSecond, 0, 0, false},
		"a cost below nothing":   {nil, perSecond, -1, 0, false},
		"at the end of its life": {nil, perSecond, 10, end, false},
		"a microsecond before":   {nil, perSecond, 10, end - 1, true},
		"of another limit":       {nil, other, 10, 0, false},
		"after a reset":          {(*localTokens).discard, perSecond, 10, 0, false},
		"given back before":      {func(h *localTokens) { h.giveBack(5000, nil) }, perSecond, 10, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, perSecond)
			n.fetch(10, 5)
			if c.do != nil {
				c.do(n.h)
			}
			out, ok := n.h.handOut(&c.p, c.cost, n.now+c.after)
			if ok != c.ok || ok && (out.Granted != 1 || out.Used != 10+c.cost) || !ok && out != (law.Outcome{}) {
				t.Errorf("%v, %+v", ok, out)
			}
		})
	}
}

// TestLeftoversAreGivenBack takes twice, pays, and checks how much of each is given back.
func TestLeftoversAreGivenBack(t *testing.T) {
	for name, c := range map[string]struct {
		pays       []int64
		after      int64 // microseconds since the second
		first, own int64 // credits given back of each
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
			n := newNode(t, perSecond)
			one, _ := n.fetch(10, 3)
			n.now += 100_000
			two, _ := n.fetch(30, 3) // more than is left
			for _, cost := range c.pays {
				if _, ok := n.h.handOut(&n.h.params, cost, n.now); !ok {
					t.Fatalf("%d were not paid", cost)
				}
			}
			var want []law.Op
			add := func(cost int64, of *law.Outcome, credits int64) {
				if credits > 0 {
					op := charge(perSecond, cost)
					back := law.Back(&op, of, credits)
					back.Group = uint32(len(want) + 2)
					want = append(want, back)
				}
			}
			add(10, &one, c.first)
			add(30, &two, c.own)
			before := []law.Op{{Verb: law.Return, Group: 1}} // of another cell
			got := n.h.giveBack(n.now+c.after, before)[1:]
			if len(got) != len(want) {
				t.Fatalf("got %+v\nwant %+v", got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("got %+v\nwant %+v", got[i], want[i])
				}
			}
			if again := n.h.giveBack(n.now, nil); len(again) > 0 {
				t.Errorf("given back twice: %+v", again)
			}
		})
	}
}

// TestNothingIsGivenBackOfASingleCharge that was taken with nothing ahead, nor of what a reset has ended.
func TestNothingIsGivenBackOfASingleCharge(t *testing.T) {
	n := newNode(t, perSecond)
	n.fetch(10, 1)
	if back := n.h.giveBack(n.now, nil); len(back) > 0 {
		t.Errorf("%+v", back)
	}
	n = newNode(t, perSecond)
	n.fetch(10, 5)
	n.h.discard()
	if back := n.h.giveBack(n.now, nil); len(back) > 0 {
		t.Errorf("after a reset: %+v", back)
	}
}

// TestRequest tells who is paid, who waits and who goes to the store.
func TestRequest(t *testing.T) {
	n := newNode(t, perSecond)
	op := charge(perSecond, 10)
	if out, wait, count, gone := n.h.request(&op, n.now); out != (law.Outcome{}) || wait != nil || count != 1 || gone {
		t.Errorf("the first: %+v, %v, %d, %v", out, wait, count, gone)
	}
	if out, wait, count, gone := n.h.request(&op, n.now); out != (law.Outcome{}) || wait == nil || count != 0 || gone {
		t.Errorf("the second: %+v, %v, %d, %v", out, wait, count, gone)
	}
	n.h.failFetch(nil)
	n.fetch(10, 2)
	if out, wait, count, gone := n.h.request(&op, n.now); out.Granted != 1 || wait != nil || count != 0 || gone {
		t.Errorf("who can be paid: %+v, %v, %d, %v", out, wait, count, gone)
	}
	n.h.discard()
	if out, wait, count, gone := n.h.request(&op, n.now); out != (law.Outcome{}) || wait != nil || count != 0 || !gone {
		t.Errorf("after the end: %+v, %v, %d, %v", out, wait, count, gone)
	}
}

// TestFinishFetch tells what each answer is to the caller, to those who wait, and to what is held.
func TestFinishFetch(t *testing.T) {
	state := law.State{Kind: law.Bucket, Level: 700, At: ahead, Unit: 10, Step: 1_000_000, EmptyAt: 2 * ahead}
	answer := func(granted, retryAt int64) law.Outcome {
		return law.Outcome{Granted: granted, State: state, Used: 700, Clock: ahead, RetryAt: retryAt}
	}
	failed, stale := answer(0, 0), answer(0, 0)
	failed.Err, stale.Stale = errors.New("failed"), true
	for name, c := range map[string]struct {
		out     law.Outcome
		granted int64 // to the caller
		short   bool
		held    int64
	}{
		"an error":                {failed, 0, false, 20},
		"stale":                   {stale, 0, false, 20},
		"nothing":                 {answer(0, 3*ahead), 0, true, 20},
		"one of five":             {answer(1, 3*ahead), 1, true, 20},
		"two of five":             {answer(2, 3*ahead), 1, true, 50},
		"all":                     {answer(5, 0), 1, false, 140},
		"all, but it has ended":   {answer(5, 0), 1, false, 0},
		"some, but it has ended":  {answer(2, 3*ahead), 1, true, 0},
		"nothing, and it is over": {answer(0, 3*ahead), 0, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, perSecond)
			before, _ := n.fetch(10, 3)
			used := n.h.spent
			op := charge(perSecond, 30)
			n.h.request(&op, n.now)
			_, wait, _, _ := n.h.request(&op, n.now)
			if c.held == 0 {
				n.h.discard()
			}
			op.Count, op.Partial = 5, true
			n.now += 100
			mine := n.h.finishFetch(&op, &c.out, n.now)
			want := c.out
			if c.granted > 0 {
				want = law.Split(&op, &c.out, 0)
			}
			if mine != want || mine.Granted != c.granted {
				t.Errorf("the caller is told %+v\nwant %+v", mine, want)
			}
			select {
			case <-wait.done:
			default:
				t.Error("those who wait are not told")
			}
			refusal := law.Outcome{}
			if c.short {
				refusal = c.out
				refusal.Granted = 0
			}
			smaller := charge(perSecond, 29)
			if wait.alsoRefuses(&op) != c.short || wait.alsoRefuses(&smaller) || wait.out != refusal {
				t.Errorf("those who wait are refused: %v, by %+v, want %v", wait.alsoRefuses(&op), wait.out, c.short)
			}
			told, heard, charged := before, int64(5000), used
			if c.granted > 0 && c.held > 0 {
				told, heard, charged = c.out, n.now, op.Cost
			}
			if n.h.out != told || n.h.sent != heard || n.h.spent != charged || n.h.fetch != nil {
				t.Errorf("%d credits have gone since %d, when the store said %+v", n.h.spent, n.h.sent, n.h.out)
			}
			n.holds(c.held)
		})
	}
}

// TestACreditThatCameWithAnotherIsHeld at the smallest cost.
func TestACreditThatCameWithAnotherIsHeld(t *testing.T) {
	n := newNode(t, perSecond)
	n.fetch(1, 2)
	n.holds(1)
}

func TestHowLongItIsHeld(t *testing.T) {
	const life = 1_000_000
	for name, c := range map[string]struct {
		drain, clock, at, emptyAt int64
		want                      int64
	}{
		"what drains in part":                   {9999, ahead, ahead, ahead + 7, life},
		"a window, to its end":                  {10_000, ahead, ahead - 100, ahead + 7, 7},
		"a window that forgets more than it is": {10_001, ahead, ahead - 100, ahead + 7, 7},
		"a window whose cell is ahead":          {law.Max, ahead, ahead + 5, ahead + 7, 2},
		"a window that is longer than a life":   {law.Max, ahead, ahead, ahead + 2*life, life},
	} {
		t.Run(name, func(t *testing.T) {
			p := perSecond
			p.Drain = c.drain
			out := law.Outcome{Clock: c.clock, State: law.State{At: c.at, EmptyAt: c.emptyAt}}
			if got := newLocalTokens(p).life(&out); got != c.want {
				t.Errorf("%d µs, want %d", got, c.want)
			}
		})
	}
}

// TestGrantsThatExpireTogether: all grants whose life is over are dropped at once, and the next one stays.
func TestGrantsThatExpireTogether(t *testing.T) {
	n := newNode(t, perSecond)
	for _, cost := range []int64{10, 20, 40} { // none is paid out of those before
		n.fetch(cost, 2)
		n.now += 100
	}
	n.now += 1_000_000 - 200 // the end of the second
	n.holds(40)
}
