package traffic_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// rig is a Traffic with a clock that only advance moves.
type rig struct {
	*traffic.Traffic
	mu  sync.Mutex
	now time.Time
}

func newRig(defined func(string) bool) *rig {
	r := &rig{now: time.Unix(1_795_600_000, 500_000_000)}
	r.Traffic = traffic.New(&traffic.Config{Defined: defined, Clock: func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.now
	}})
	return r
}

func (r *rig) advance(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

// take observes a decision about one charge.
func (r *rig) take(limit, key, cost string, allowed bool) {
	r.Decided(nil, event(limit, key, cost, allowed)) //nolint:staticcheck // Decided ignores the context
}

func event(limit, key, cost string, allowed bool) headgate.Event {
	return headgate.Event{
		Verb: headgate.VerbTake, Limit: limit,
		Decision: headgate.Decision{Allowed: allowed, LimitName: limit, Key: key},
		Charges:  []headgate.Charge{{Key: key, Cost: headgate.MustCost(cost)}},
	}
}

func allLimits(string) bool { return true }

// top returns the first n keys of all limits as text.
func (r *rig) top(by traffic.Outcome, n int) string {
	var list []string
	for _, k := range r.Top(by, n, allLimits) {
		list = append(list, fmt.Sprintf("%s/%s %v used, %v refused", k.Limit, k.Key, k.Used, k.Refused))
	}
	return strings.Join(list, "; ")
}

func TestEverySecondIsCountedExactly(t *testing.T) {
	r := newRig(nil)
	for n := range 10 {
		for range n {
			r.take("api", "k", "1", n%3 != 0)
		}
		r.Decided(t.Context(), headgate.Event{Limit: "login", Err: headgate.ErrInvalid})
		r.advance(time.Second)
	}
	list, end := r.Series(9, allLimits)
	if len(list) != 2 || list[0].Limit != "api" || list[1].Limit != "login" || end.Unix() != 1_795_600_010 {
		t.Fatalf("got %+v, %s, want api and login up to second 10", list, end)
	}
	want := [traffic.OutcomeCount][]uint32{
		{1, 2, 0, 4, 5, 0, 7, 8, 0}, {0, 0, 3, 0, 0, 6, 0, 0, 9}, {0, 0, 0, 0, 0, 0, 0, 0, 0},
	}
	for o := range want {
		if !slices.Equal(list[0].Counts[o], want[o]) {
			t.Errorf("outcome %d: got %v, want %v", o, list[0].Counts[o], want[o])
		}
	}
	if !slices.Equal(list[1].Counts[traffic.Failed], []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1}) {
		t.Errorf("failed: got %v, want 1 in each second", list[1].Counts[traffic.Failed])
	}
	r.advance(295 * time.Second)
	if list, _ := r.Series(1000, allLimits); len(list) != 2 || len(list[0].Counts[0]) != traffic.Seconds ||
		list[0].Counts[traffic.Admitted][3] != 8 || list[0].Counts[traffic.Refused][4] != 9 {
		t.Errorf("after 305 s: %v", list[0].Counts[0][:5])
	}
	r.take("api", "k", "1", true) // replaces a second that is more than 300 s old
	r.advance(5 * time.Second)
	if list, _ := r.Series(traffic.Seconds, allLimits); len(list) != 1 || slices.Max(list[0].Counts[0]) != 1 {
		t.Errorf("after 310 s: %v", list)
	}
}

func TestChecksAndReplaysAreNotCounted(t *testing.T) {
	r := newRig(nil)
	check := event("api", "k", "1", false)
	check.Verb = headgate.VerbCheck
	r.Decided(t.Context(), check)
	replay := event("api", "k", "1", true)
	replay.Decision.Replayed = true
	r.Decided(t.Context(), replay)
	if got := r.top(traffic.Admitted, 9) + r.top(traffic.Refused, 9); got != "" {
		t.Errorf("got the keys %s, want none", got)
	}
}

// TestTopOfAlternatives counts the keys of the alternative that was taken: what would have passed of the one before it
// was not charged. An extension names the charges of the alternative alone.
func TestTopOfAlternatives(t *testing.T) {
	r := newRig(nil)
	l := headgate.New(memory.New(nil), &headgate.Config{Observer: r})
	plan := headgate.Charge{Limit: headgate.MustParseNamed("plan", "fixed-window 9/30d"), Key: "a"}
	model := headgate.Charge{Limit: headgate.MustParseNamed("model", "fixed-window 1/30d"), Key: "a"}
	request := headgate.FirstOf([]headgate.Charge{plan, model}, []headgate.Charge{plan})
	for range 3 {
		if _, err := l.Take(t.Context(), request...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Once("id", 0).Take(t.Context(), request...); err != nil {
		t.Fatal(err)
	}
	request[2].Cost = headgate.Units(3)
	if _, err := l.Once("id", 0).Extend(t.Context(), request[2]); err != nil {
		t.Fatal(err)
	}
	if got := r.top(traffic.Admitted, 9); got != "plan/a 7 used, 0 refused; model/a 1 used, 0 refused" {
		t.Errorf("got %s, want plan 4 and 3, model 1", got)
	}
}

// TestTop checks the order of keys by the admitted cost and by refusals, and that old counts end.
func TestTop(t *testing.T) {
	r := newRig(nil)
	r.take("api", "a", "2.5", true)
	r.take("api", "b", "4", true)
	r.take("api", "a", "100", false)
	r.take("login", "a", "0.25", true)
	twoCharges := event("api", "a", "3", true)
	twoCharges.Charges = append(twoCharges.Charges, headgate.Charge{Key: "a"})
	twoCharges.Decision.Each = []headgate.ChargeDecision{
		{Charge: 0, Allowed: true, LimitName: "api", Key: "a"}, {Charge: 1, Allowed: true, LimitName: "login", Key: "a"},
	}
	r.Decided(t.Context(), twoCharges)
	twoCharges.Decision.Allowed, twoCharges.Decision.Each[1].Allowed = false, false
	r.Decided(t.Context(), twoCharges) // only login refuses
	fillUp := event("api", "b", "9", true)
	fillUp.Verb, fillUp.Accepted = headgate.VerbFillUp, headgate.MustCost("0.75")
	r.Decided(t.Context(), fillUp)
	want := "api/a 5.5 used, 1 refused; api/b 4.75 used, 0 refused; login/a 1.25 used, 1 refused"
	if got := r.top(traffic.Admitted, 3); got != want {
		t.Errorf("used: %s\nwant: %s", got, want)
	}
	want = "api/a 5.5 used, 1 refused; login/a 1.25 used, 1 refused"
	if got := r.top(traffic.Refused, 3); got != want {
		t.Errorf("refused: %s\nwant:    %s", got, want)
	}
	r.advance(20 * time.Second)
	r.take("login", "a", "1", false)
	k := r.Top(traffic.Refused, 1, func(limit string) bool { return limit == "login" })
	if len(k) != 1 || k[0].Refused != 2 || k[0].Recent[traffic.Parts-3] != 1 || k[0].Recent[traffic.Parts-1] != 1 {
		t.Errorf("got %+v, want 2 refusals, 20 seconds apart", k)
	}
	r.advance(290 * time.Second)
	if got := r.top(traffic.Refused, 3); got != "login/a 0 used, 1 refused" {
		t.Errorf("after 310 s: %s", got)
	}
	r.advance(20 * time.Second)
	if got := r.top(traffic.Refused, 3); got != "" {
		t.Errorf("after 330 s: %s", got)
	}
}

// TestNewKeysReplaceOldOnes checks that new keys replace old ones, since weights halve each minute.
func TestNewKeysReplaceOldOnes(t *testing.T) {
	for _, pause := range []time.Duration{10 * time.Minute, 100 * time.Hour, 10 * 365 * 24 * time.Hour} {
		r := newRig(nil)
		for i := range traffic.MaxKeys {
			r.take("api", fmt.Sprint("old", i), "100", true)
		}
		r.advance(pause)
		for n := range 20 {
			for i := range 20 {
				r.take("api", fmt.Sprint("new", i), "1", true)
				r.take("api", fmt.Sprint("once", n, i), "1", true)
			}
			r.advance(time.Second)
		}
		for i, k := range r.Top(traffic.Admitted, 20, allLimits) {
			if !strings.HasPrefix(k.Key, "new") || k.Used != 20 {
				t.Errorf("after %s: key %d is %s with %v, want a new one with 20", pause, i, k.Key, k.Used)
			}
		}
	}
}

// TestMaxLimitsAndKeys checks the bounds on limits and their keys, and that removed limits make room for another.
func TestMaxLimitsAndKeys(t *testing.T) {
	removed := false
	r := newRig(func(name string) bool { return !removed && name != "nobody" })
	fullLimits := tier.Pick(40, traffic.MaxLimits+5, traffic.MaxLimits+5) // how many limits get MaxKeys keys
	for i := range traffic.MaxLimits + 5 {
		n := traffic.MaxKeys
		if i >= fullLimits {
			n = 2 * traffic.MinKeys
		}
		for k := range n {
			r.take(fmt.Sprint("limit", i), fmt.Sprint("key", k), "1", true)
		}
	}
	r.take("fixed-window 1/1h", "k", "1", true)
	r.Decided(t.Context(), headgate.Event{Limit: "nobody", Err: headgate.ErrInvalid})
	names := func() (list []string) {
		series, _ := r.Series(10, allLimits)
		for _, s := range series {
			list = append(list, s.Limit)
		}
		return list
	}
	r.advance(time.Second)
	if got := names(); len(got) != traffic.MaxLimits+3 || !slices.Equal(got[:3],
		[]string{"(inline)", "(others)", "(unknown)"}) {
		t.Errorf("got %d names: %v, want %d with 3 for others", len(got), got, traffic.MaxLimits+3)
	}
	keys := r.Top(traffic.Admitted, 1<<20, allLimits)
	const total = traffic.MaxTotalKeys
	if maxKeys := total + traffic.MaxLimits*traffic.MinKeys; len(keys) > maxKeys || len(keys) < total {
		t.Errorf("got %d keys, want %d to %d", len(keys), total, maxKeys)
	}
	byLimit := map[string]int{}
	for _, k := range keys {
		byLimit[k.Limit]++
	}
	if byLimit["limit0"] != traffic.MaxKeys || byLimit["limit199"] != traffic.MinKeys || byLimit["fixed-window 1/1h"] != 1 {
		t.Errorf("got %v keys, want %d of limit0, %d of limit199, 1 inline", byLimit, traffic.MaxKeys, traffic.MinKeys)
	}
	removed = true
	if got := names(); len(got) != 3 {
		t.Errorf("after all limits were removed: got %v, want 3 names", got)
	}
	removed = false
	for k := range traffic.MaxKeys {
		r.take("another", fmt.Sprint("key", k), "1", true)
	}
	keys = r.Top(traffic.Admitted, 1<<20, func(name string) bool { return name == "another" })
	if len(keys) != traffic.MaxKeys {
		t.Errorf("another limit: got %d keys, want %d", len(keys), traffic.MaxKeys)
	}
}

// TestConcurrentDecisions checks that the counts are exact when 8 goroutines report 1000 decisions each.
func TestConcurrentDecisions(t *testing.T) {
	r := newRig(nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 1000 {
				r.take("api", fmt.Sprint("key", i%10), "1", g%2 == 0)
				if i%100 == 0 {
					r.Top(traffic.Refused, 5, allLimits)
					r.Series(5, allLimits)
				}
			}
		})
	}
	wg.Wait()
	r.advance(time.Second)
	list, _ := r.Series(1, allLimits)
	if len(list) != 1 || list[0].Counts[traffic.Admitted][0] != 4000 || list[0].Counts[traffic.Refused][0] != 4000 {
		t.Errorf("got %v, want 4000 admitted and 4000 refused", list)
	}
	for _, k := range r.Top(traffic.Refused, 20, allLimits) {
		if k.Used != 400 || k.Refused != 400 {
			t.Errorf("got %+v, want 400 used and 400 refused", k)
		}
	}
}

func TestKnownKeysTakeNoMemory(t *testing.T) {
	r := traffic.New(nil)
	e := event("api", "k", "1", true)
	if n := testing.AllocsPerRun(1000, func() { r.Decided(t.Context(), e) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkDecided(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 999_999)
	events := make([]headgate.Event, 1<<16)
	for i := range events {
		events[i] = event("api", fmt.Sprint("user-", zipf.Uint64()), "1", i%4 != 0)
	}
	b.Run("one key", func(b *testing.B) {
		r := traffic.New(nil)
		b.ReportAllocs()
		for b.Loop() {
			r.Decided(b.Context(), events[0])
		}
	})
	b.Run("a million keys", func(b *testing.B) {
		r := traffic.New(nil)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r.Decided(b.Context(), events[i%len(events)])
		}
	})
}
