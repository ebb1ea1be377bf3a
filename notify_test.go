package headgate_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// crossings is an observer that records crossings.
type crossings struct {
	mu   sync.Mutex
	list []headgate.Crossing
}

func (*crossings) Decided(context.Context, headgate.Event) {}

func (o *crossings) Crossed(_ context.Context, c headgate.Crossing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = append(o.list, c)
}

// take returns the thresholds told since the last call, as in "80 100".
func (o *crossings) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	told := make([]string, len(o.list))
	for i, c := range o.list {
		told[i] = strconv.Itoa(c.Percent)
	}
	o.list = nil
	return strings.Join(told, " ")
}

// newNotifying returns a limiter over a store, with an observer of its crossings.
func newNotifying(s store.Store) (*headgate.Limiter, *crossings) {
	o := new(crossings)
	return headgate.New(s, &headgate.Config{Observer: o}), o
}

// TestCrossingsOfEachAlgorithm checks which thresholds each step of a history tells. A step is a verb with a cost, or a
// time that passes; after a colon it has what is told.
func TestCrossingsOfEachAlgorithm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ notation, steps string }{
		{"fixed-window 100/1h notify 80%,100%", "take 79, check 1, take 1: 80, take 0.5, take 19.5: 100, take 1, +1h, " +
			"take 100: 80 100, refund 30, take 30, +1h, take 79.999, take 0.001: 80"},
		{"fixed-window 100/1h notify 80%", "debit 500: 80, debit 1, +1h, debit 1, fill 500: 80, fill 500"},
		{"fixed-window 100/month notify 50%", "take 50: 50, refund 50, take 50, +31d, take 1, take 49: 50"},
		// An empty window that starts at its first charge starts again, a millisecond later here.
		{"fixed-window 100/1h from-first notify 80%", "take 80: 80, +1ms, refund 80, take 80: 80, refund 1, take 1, +1h, " +
			"take 80: 80"},
		// A limit without windows tells once in the time in which it drains.
		{"token-bucket 100/100s burst 100 notify 80%", "take 80: 80, +10s, take 10, +80s, take 79, +9s, take 20, +1s, " +
			"refund 30, take 30: 80"},
		// A level that stays above, and a replay, tell nothing, whatever the mark is.
		{"token-bucket 100/100s burst 100 notify 80%", "debit 300: 80, +101s, debit 1"},
		{"token-bucket 100/100s burst 100 notify 80%", "once a 80: 80, +101s, once a 80"},
		{"leaky-bucket 100/100s capacity 100 notify 1%,2%,3%,4%", "take 4: 1 2 3 4, +3s, take 3, +97s, take 4: 1 2 3 4"},
		{"gcra 100/100s burst 100 notify 100%", "take 99, take 1: 100, +2s, take 2"},
		{"interval 10/10s burst 100 notify 90%", "take 90: 90, +10s, take 10, +90s, take 90: 90"},
		{"sliding-window 100/1h notify 80%", "take 80: 80, +1h, take 20, +30m, take 20: 80, take 1, +30m, take 59: 80"},
		{"sliding-log 100/1h notify 80%", "take 80: 80, +1h, take 79, take 1: 80, +30m, take 20"},
		{"fixed-window 0.05/1h scale 6 notify 80%", "take 0.039999, take 0.000001: 80"},
		{"fixed-window 100/1h notify 80%", "twice 40: 80, take 1, +1h, take 1, twice 60, take 79: 80"},
		{"fixed-window 100/1h notify 80%", "reserve 70, settle 90: 80, +1h, reserve 100: 80, settle 10, take 80"},
		{"fixed-window 100/1h notify 80%", "once a 70, extend a 85: 80, extend a 85, once b 1, extend b 10, " +
			"once a 70, +1h, once a 70, once c 10: 80, once c 10"},
		{"fixed-window 100/1h notify 80%", "batch 39, batch 1: 80"},
	} {
		t.Run(tt.notation, func(t *testing.T) {
			c := newClock("2026-03-01T00:00:00Z")
			l, told := newNotifying(memory.New(&memory.Config{Clock: c.read}))
			h := history{l: l, c: c, limit: headgate.MustParse(tt.notation)}
			for i, step := range strings.Split(tt.steps, ", ") {
				step, want, _ := strings.Cut(step, ": ")
				crossed := h.do(t, step)
				highest := 0
				if list := strings.Fields(want); len(list) > 0 {
					highest, _ = strconv.Atoi(list[len(list)-1])
				}
				if got := told.take(); got != want || crossed != highest && crossed >= 0 {
					t.Fatalf("step %d, %s: told %q and Crossed %d, want %q", i+1, step, got, crossed, want)
				}
			}
		})
	}
}

// history makes the steps of a history of one key.
type history struct {
	l        *headgate.Limiter
	c        *clock
	limit    headgate.Limit
	reserved *headgate.Reservation
}

// do makes one step, and returns the Crossed of its decision, or -1 if it has none.
func (h *history) do(t *testing.T, step string) (crossed int) {
	t.Helper()
	verb, arg, _ := strings.Cut(step, " ")
	if after, passes := strings.CutPrefix(verb, "+"); passes {
		d, err := headgate.ParsePeriod(after)
		if err != nil {
			t.Fatal(err)
		}
		h.c.advance(d)
		return -1
	}
	id, amount, hasID := strings.Cut(arg, " ")
	if !hasID {
		amount = id
	}
	ctx, cost := t.Context(), headgate.MustCost(amount)
	charge := headgate.Charge{Limit: h.limit, Key: "k", Cost: cost}
	var d headgate.Decision
	var err error
	switch verb {
	case "take":
		d, err = h.l.Take(ctx, charge)
	case "twice":
		d, err = h.l.Take(ctx, charge, charge)
	case "check":
		d, err = h.l.Check(ctx, charge)
	case "debit":
		var r headgate.DebitResult
		r, err = h.l.Debit(ctx, charge)
		d = r.Decision
	case "fill":
		var r headgate.FillUpResult
		r, err = h.l.FillUp(ctx, charge)
		d = r.Decision
	case "once":
		d, err = h.l.Once(id, 0).Take(ctx, charge)
	case "extend":
		var r headgate.ExtendResult
		r, err = h.l.Once(id, 0).Extend(ctx, charge)
		d = r.Decision
	case "batch":
		var list []headgate.BatchResult
		request := headgate.Request{Charges: []headgate.Charge{charge}}
		list, err = h.l.Batch(ctx, []headgate.Request{request, request})
		d = list[0].Decision
		d.Crossed = max(d.Crossed, list[1].Decision.Crossed)
	case "reserve":
		h.reserved, err = h.l.Reserve(ctx, 0, charge)
		d = h.reserved.Decision
	case "settle":
		_, err = h.reserved.Settle(ctx, cost)
		d.Crossed = -1
	case "refund":
		_, err = h.l.Refund(ctx, charge)
		d.Crossed = -1
	default:
		t.Fatalf("step %s", step)
	}
	if err != nil {
		t.Fatalf("step %s: %v", step, err)
	}
	return d.Crossed
}

// TestACrossingSaysWhatWasCrossed checks the figures of a crossing, and which charge of a request tells it.
func TestACrossingSaysWhatWasCrossed(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l, told := newNotifying(memory.New(&memory.Config{Clock: c.read, Names: true}))
	day := headgate.MustParseNamed("day", "fixed-window 100/1d notify 80%")
	d, err := l.Take(t.Context(),
		headgate.Charge{Limit: headgate.MustParse("token-bucket 5/s"), Key: "k", Cost: headgate.Units(5)},
		headgate.Charge{Limit: day, Key: "k", Cost: headgate.MustCost("82.5")})
	if err != nil || d.Crossed != 80 || d.LimitName == "day" || d.Each[0].Crossed != 0 || d.Each[1].Crossed != 80 {
		t.Errorf("decision %+v, %v", d, err)
	}
	want := headgate.Crossing{
		Limit: "day", Key: "k", Percent: 80, Capacity: headgate.Units(100), Used: headgate.MustCost("82.5"),
		At: time.UnixMicro(c.now).UTC(),
	}
	if !slices.Equal(told.list, []headgate.Crossing{want}) {
		t.Errorf("told %+v, want %+v", told.list, want)
	}
	list, err := l.List(t.Context(), store.Query{Max: 10}, day)
	if err != nil || len(list) != 3 || list[2].Limit != headgate.MarkLimit || list[2].EmptyAt.Before(list[0].EmptyAt) {
		t.Errorf("cells %+v, %v; want the mark last, which lives as long as the window", list, err)
	}
}

// TestAHigherAmountIsToldAnew raises the amount of a limit within a window, as an override or a plan does, changes its
// steps of cost, and lowers it again.
func TestAHigherAmountIsToldAnew(t *testing.T) {
	t.Parallel()
	l, told := newNotifying(memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read}))
	for _, tt := range []struct{ notation, cost, want string }{
		{"fixed-window 100/month notify 80%,100%", "100", "80 100"},
		{"fixed-window 1000/month notify 80%,100%", "700", "80"},
		{"fixed-window 1000/month scale 6 notify 80%,100%", "200", "100"},
		{"fixed-window 1000/month notify 80%,100%", "-500", ""},
		{"fixed-window 1000/month notify 80%,100%", "400", ""},
		{"fixed-window 100/month notify 80%,100%", "100", ""},
	} {
		c := headgate.Charge{Limit: headgate.MustParseNamed("quota", tt.notation), Key: "k"}
		var err error
		if refund, is := strings.CutPrefix(tt.cost, "-"); is {
			c.Cost = headgate.MustCost(refund)
			_, err = l.Refund(t.Context(), c)
		} else {
			c.Cost = headgate.MustCost(tt.cost)
			_, err = l.Debit(t.Context(), c)
		}
		if got := told.take(); err != nil || got != tt.want {
			t.Errorf("%s of %s: told %q, want %q; %v", tt.cost, tt.notation, got, tt.want, err)
		}
	}
}

// TestMarksOfShortWindows checks that a busy key does not keep a minute of marks.
func TestMarksOfShortWindows(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	s := memory.New(&memory.Config{Clock: c.read, Names: true})
	l, told := newNotifying(s)
	for range 100 {
		if _, err := l.Allow(t.Context(), headgate.MustParse("fixed-window 1/1s notify 100%"), "k"); err != nil {
			t.Fatal(err)
		}
		c.advance(time.Second)
		if _, err := s.Sweep(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := l.List(t.Context(), store.Query{}); err != nil || len(list) > 3 || len(told.list) != 100 {
		t.Errorf("%d cells, told %d times, %v; want at most 3, and 100", len(list), len(told.list), err)
	}
}

// TestRefusedRequestsTellNothing checks a request of which one charge fits and crosses, and the other does not fit.
func TestRefusedRequestsTellNothing(t *testing.T) {
	t.Parallel()
	l, told := newNotifying(memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read}))
	crosses := headgate.Charge{Limit: headgate.MustParse("fixed-window 1/1h notify 80%"), Key: "k"}
	for _, request := range [][]headgate.Charge{
		{crosses, {Limit: headgate.MustParse("0"), Key: "k"}},
		{{Limit: headgate.MustParse("0"), Key: "k"}, crosses},
		{crosses, crosses},
	} {
		if d, err := l.Take(t.Context(), request...); err != nil || d.Allowed || d.Crossed != 0 || told.take() != "" {
			t.Errorf("%+v, %v", d, err)
		}
	}
	if d, err := l.Take(t.Context(), crosses); err != nil || d.Crossed != 80 {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestALeaseTellsACrossing checks a limit of concurrency, which tells once in the life of a lease.
func TestALeaseTellsACrossing(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l, told := newNotifying(memory.New(&memory.Config{Clock: c.read}))
	job := headgate.Charge{Limit: headgate.MustParse("concurrency 2 ttl 1h notify 100%"), Key: "k"}
	for _, want := range []int{0, 100, 0} { // the third is refused
		lease, err := l.Acquire(t.Context(), job)
		if err != nil || lease.Decision.Crossed != want {
			t.Fatalf("%+v, %v; want %d", lease.Decision, err, want)
		}
		lease.Detach()
	}
	c.advance(time.Hour)
	job.Cost = headgate.Units(2)
	lease, err := l.Acquire(t.Context(), job)
	if err != nil || lease.Decision.Crossed != 100 || told.take() != "100 100" {
		t.Errorf("%+v, %v", lease.Decision, err)
	}
	lease.Detach()
}

// failingMarks is a store that fails all batches that set marks, or only blocks them until their context ends.
type failingMarks struct {
	store.Store
	blocks bool
}

func (s failingMarks) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if ops[0].Cell.Limit != headgate.MarkLimit {
		return s.Store.Apply(ctx, ops, outs)
	}
	if s.blocks {
		<-ctx.Done()
		return ctx.Err()
	}
	return store.ErrUnavailable
}

// TestACrossingIsToldWithoutAMark checks that a mark that cannot be set changes no decision and holds back no crossing.
func TestACrossingIsToldWithoutAMark(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 100/1h notify 80%")
	for _, blocks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := failingMarks{memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read}), blocks}
			l, told := newNotifying(s)
			charge := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(90)}
			d, err := l.Take(t.Context(), charge)
			if err != nil || !d.Allowed || d.Crossed != 80 || told.take() != "80" {
				t.Errorf("Take: %+v, %v", d, err)
			}
			charge.Key = "wait"
			if err := l.Wait(t.Context(), charge); err != nil || told.take() != "80" {
				t.Errorf("Wait: %v", err)
			}
		})
	}
}

// TestTwoLimitersTellACrossingOnce checks that one of the callers of two limiters with one store tells each threshold.
func TestTwoLimitersTellACrossingOnce(t *testing.T) {
	t.Parallel()
	s := memory.New(&memory.Config{Clock: newClock("2026-03-01T12:00:00Z").read})
	told := new(crossings)
	var wg sync.WaitGroup
	var fromDecisions [101]int
	var mu sync.Mutex
	limit := headgate.MustParse("fixed-window 1000/1h notify 20%,50%,100%")
	for range 2 {
		wrapped := front.New(s, nil)
		defer wrapped.Close()
		l := headgate.New(wrapped, &headgate.Config{Observer: told})
		for range 32 {
			wg.Go(func() {
				for range 40 {
					d, err := l.Allow(context.Background(), limit, "k")
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					fromDecisions[d.Crossed]++
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	list := strings.Fields(told.take())
	slices.Sort(list)
	if !slices.Equal(list, []string{"100", "20", "50"}) ||
		fromDecisions[20] != 1 || fromDecisions[50] != 1 || fromDecisions[100] != 1 {
		t.Errorf("told %v, decisions %v", list, fromDecisions)
	}
}
