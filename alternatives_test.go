package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// each returns the decisions about the charges of a request as text, such as "0 false plan 2".
func each(d headgate.Decision) string {
	var list []string
	for _, c := range d.Each {
		list = append(list, fmt.Sprint(c.Charge, " ", c.Allowed, " ", c.LimitName, " ", c.Remaining))
	}
	return strings.Join(list, ", ")
}

// TestFirstOf drains the alternatives of a request one after another: a plan with a model, another model, credits.
func TestFirstOf(t *testing.T) {
	t.Parallel()
	c := newClock("2026-03-01T12:00:00Z")
	l := newLimiter(c)
	named := func(name, notation string) headgate.Charge {
		return headgate.Charge{Limit: headgate.MustParseNamed(name, notation), Key: "k", Cost: headgate.Units(3)}
	}
	plan, small := named("plan", "fixed-window 8/day UTC"), named("small", "token-bucket 1/s burst 4")
	credits := named("credits", "fixed-window 4/hour block 1m")
	request := headgate.FirstOf([]headgate.Charge{plan, small}, []headgate.Charge{plan}, []headgate.Charge{credits})
	for i, want := range []struct {
		allowed     bool
		alternative int
		limit       string
		each        string
		retryAfter  time.Duration
	}{
		{true, 1, "small", "0 true plan 5, 1 true small 1", 0},
		{true, 2, "plan", "0 true plan 5, 1 false small 1, 2 true plan 2", 0},
		{true, 3, "credits", "0 false plan 2, 1 false small 1, 2 false plan 2, 3 true credits 1", 0},
		{false, 3, "credits", "0 false plan 2, 1 false small 1, 2 false plan 2, 3 false credits 0", time.Hour},
	} {
		check, err := l.Check(context.Background(), request...)
		if err != nil || check.Allowed != want.allowed || check.Alternative != want.alternative {
			t.Errorf("check %d: got %v of %d, %v; want %v of %d", i+1, check.Allowed, check.Alternative, err,
				want.allowed, want.alternative)
		}
		d, err := l.Take(context.Background(), request...)
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed != want.allowed || d.Alternative != want.alternative || d.LimitName != want.limit ||
			each(d) != want.each || d.RetryAfter != want.retryAfter {
			t.Errorf("take %d: got %v of %d, %s, %s, again in %s; want %+v", i+1, d.Allowed, d.Alternative, d.LimitName,
				each(d), d.RetryAfter, want)
		}
	}
	c.advance(time.Hour)
	if d, err := l.Take(context.Background(), request...); err != nil || d.Alternative != 3 || !d.Allowed {
		t.Errorf("an hour later: got %+v, %v; want credits", d, err)
	}
	c.advance(11 * time.Hour)
	if d, err := l.Take(context.Background(), request...); err != nil || d.Alternative != 1 || !d.Allowed {
		t.Errorf("the next day: got %+v, %v; want the first alternative", d, err)
	}
}

// TestFirstOfWithAnID settles the alternative that was charged, and repeats the request.
func TestFirstOfWithAnID(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	alternatives := [][]headgate.Charge{charges("k", "6 of sliding-log 5/1h"), charges("k", "6 of sliding-log 8/1h")}
	once := l.Once("job", time.Hour)
	for i := range 2 {
		d, err := once.Take(context.Background(), headgate.FirstOf(alternatives...)...)
		if err != nil || d.Alternative != 2 || d.Replayed != (i > 0) {
			t.Fatalf("take %d: got %+v, %v; want the second alternative", i+1, d, err)
		}
		alternatives[0] = charges("k", "5 of sliding-log 5/1h") // which has room
	}
	taken := headgate.FirstOf(alternatives...)[1:]
	taken[0].Cost = headgate.Units(8)
	if e, err := once.Extend(context.Background(), taken...); err != nil || !e.Decision.Allowed {
		t.Errorf("extend: got %+v, %v", e, err)
	}
	taken[0].Cost = headgate.Units(2)
	corrected, err := once.Settle(context.Background(), taken...)
	if err != nil || fmt.Sprint(corrected) != "[6]" {
		t.Errorf("settle: got %v, %v, want 6 returned", corrected, err)
	}
	if got := inUse(t, l, "sliding-log 5/1h", "k") + " " + inUse(t, l, "sliding-log 8/1h", "k"); got != "0 2" {
		t.Errorf("in use: got %s, want 0 2", got)
	}
}

// TestAlternativesInABatch decides requests with and without alternatives in one round trip.
func TestAlternativesInABatch(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	first := headgate.FirstOf(charges("k", "1 of sliding-log 1/1h"), charges("k", "1 of fixed-window 1/hour"))
	results, err := l.Batch(context.Background(), []headgate.Request{
		{Charges: first},
		{Charges: first, Check: true},
		{Charges: first, ID: "id"},
		{Charges: first},
		{Charges: first[1:]},
		{Charges: charges("k", "1 of sliding-log 2/1h")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1 true", "2 true", "2 true", "1 false", "0 false invalid", "0 true"} {
		got := fmt.Sprint(results[i].Decision.Alternative, " ", results[i].Decision.Allowed)
		if errors.Is(results[i].Err, headgate.ErrInvalid) {
			got += " invalid"
		}
		if got != want {
			t.Errorf("request %d: got %s, %v; want %s", i+1, got, results[i].Err, want)
		}
	}
}

// TestOneAlternative takes a request whose only charge is an alternative, and gives the charge of one back.
func TestOneAlternative(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	request := headgate.FirstOf(charges("k", "2 of fixed-window 1/hour"), charges("k", "2 of fixed-window 3/hour"))
	if d, err := l.Take(context.Background(), request...); err != nil || d.Alternative != 2 || len(d.Each) != 2 {
		t.Fatalf("got %+v, %v; want the second alternative", d, err)
	}
	if returned, err := l.Refund(context.Background(), request[1]); err != nil || returned != headgate.Units(2) {
		t.Errorf("the charge that was taken: got %s returned, %v; want 2", returned, err)
	}
	d, err := l.Take(context.Background(), headgate.FirstOf(charges("k", "2 of fixed-window 3/hour"))...)
	if err != nil || !d.Allowed || d.Alternative != 1 || d.Each != nil {
		t.Errorf("one alternative of one charge: got %+v, %v; want it taken, and Each nil", d, err)
	}
}

// TestWaitForAlternatives waits for the alternative that can pass first, whatever the algorithms are.
func TestWaitForAlternatives(t *testing.T) {
	for _, notations := range [][2]string{
		{"token-bucket 1/3s burst 1", "gcra 1/5s burst 1"}, {"sliding-log 1/3s", "gcra 1/5s burst 1"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, begin := headgate.New(memory.New(nil), nil), time.Now()
			request := headgate.FirstOf(charges("k", "1 of "+notations[0]), charges("k", "1 of "+notations[1]))
			for _, want := range []float64{0, 0, 3, 5, 6, 9, 10} {
				if err := l.Wait(context.Background(), request...); err != nil {
					t.Fatal(err)
				}
				if got := time.Since(begin).Seconds(); got != want {
					t.Errorf("%s: passed after %v s, want %v s", notations, got, want)
				}
			}
			err := l.WaitAtMost(context.Background(), time.Second, request...)
			if d, ok := errors.AsType[*headgate.DeniedError](err); !ok || !errors.Is(err, headgate.ErrDeadline) ||
				d.Decision.Alternative != 1 || d.Decision.RetryAfter != 2*time.Second {
				t.Errorf("%s: got %v, want ErrDeadline, and the first alternative in 2 s", notations, err)
			}
		})
	}
}

func TestBadAlternatives(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	numbered := func(numbers ...int) []headgate.Charge {
		list := charges("k", "1 of token-bucket 9/s", "1 of token-bucket 8/s", "1 of token-bucket 7/s")[:len(numbers)]
		for i, n := range numbers {
			list[i].Alternative = n
		}
		return list
	}
	lease := headgate.Charge{Limit: headgate.MustParse("concurrency 5 ttl 1m"), Key: "k", Alternative: 1}
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"no first":     func() error { _, err := l.Take(ctx, numbered(2)...); return err },
		"a gap":        func() error { _, err := l.Take(ctx, numbered(1, 3)...); return err },
		"back":         func() error { _, err := l.Take(ctx, numbered(1, 2, 1)...); return err },
		"some without": func() error { _, err := l.Take(ctx, numbered(1, 0)...); return err },
		"some with":    func() error { _, err := l.Check(ctx, numbered(0, 1)...); return err },
		"below 0":      func() error { _, err := l.Take(ctx, numbered(-1)...); return err },
		"too many":     func() error { _, err := l.Take(ctx, numbered(256)...); return err },
		"an empty one": func() error { _, err := l.Take(ctx, headgate.FirstOf(nil, numbered(0))...); return err },
		"nothing":      func() error { _, err := l.Take(ctx, headgate.FirstOf()...); return err },
		"with a wait":  func() error { return l.WaitAtMost(ctx, time.Second, numbered(1, 3)...) },
		"reserved":     func() error { _, err := l.Reserve(ctx, time.Second, numbered(1, 2)...); return err },
		"reserved at once": func() error {
			windows := headgate.FirstOf(charges("k", "6 of fixed-window 5/day"), charges("k", "6 of sliding-log 9/1h"))
			_, err := l.Reserve(ctx, 0, windows...)
			return err
		},
		"reserved with an id": func() error {
			_, err := l.Once("i", 0).Reserve(ctx, time.Minute, headgate.FirstOf(charges("k", "1 of fixed-window 5/day"))...)
			return err
		},
		"filled up":         func() error { _, err := l.FillUp(ctx, numbered(1)[0]); return err },
		"acquired":          func() error { _, err := l.Acquire(ctx, lease, lease); return err },
		"a key twice by id": func() error { _, err := l.Once("i", 0).Take(ctx, append(numbered(1), numbered(1)...)...); return err },
	} {
		if err := call(); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if got := inUse(t, l, "token-bucket 9/s", "k"); got != "0" {
		t.Errorf("%s in use, want 0", got)
	}
}

// TestAlternativesTellCrossings tells the thresholds of the alternative that is charged.
func TestAlternativesTellCrossings(t *testing.T) {
	t.Parallel()
	l := newLimiter(newClock("2026-03-01T12:00:00Z"))
	request := headgate.FirstOf(charges("k", "3 of fixed-window 4/day UTC notify 50%"),
		charges("k", "3 of fixed-window 7/day UTC notify 40%,80%"))
	var got []int
	for range 4 {
		d, err := l.Take(context.Background(), request...)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, d.Crossed)
	}
	if fmt.Sprint(got) != "[50 40 80 0]" {
		t.Errorf("got %v, want 50, 40, 80 and nothing", got)
	}
}

// TestAlternativesThroughTheStack decides through all wrappers: none may repeat the refusal of an alternative that was
// passed over, or hand out tokens for one.
func TestAlternativesThroughTheStack(t *testing.T) {
	t.Parallel()
	s := front.New(memory.New(nil), nil)
	t.Cleanup(func() { _ = s.Close() })
	l := headgate.New(s, nil)
	plan := headgate.Charge{Limit: headgate.MustParse("fixed-window 10/30d prefetch 5"), Key: "k"}
	credits := headgate.Charge{Limit: headgate.MustParse("fixed-window 3/30d block 1h"), Key: "k"}
	counts := map[string]int{}
	for range 20 {
		d, err := l.Take(context.Background(), headgate.FirstOf([]headgate.Charge{plan}, []headgate.Charge{credits})...)
		if err != nil {
			t.Fatal(err)
		}
		counts[fmt.Sprint(d.Alternative, d.Allowed, d.Via)]++
	}
	if got := fmt.Sprint(counts); got != "map[1 false store:7 1 true store:10 2 true store:3]" {
		t.Errorf("got %s", got)
	}
}
