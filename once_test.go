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
	"github.com/headgate/headgate/store/memory"
)

// charges returns charges of a key, each written as "COST of LIMIT".
func charges(key string, of ...string) []headgate.Charge {
	var list []headgate.Charge
	for _, text := range of {
		cost, limit, _ := strings.Cut(text, " of ")
		list = append(list, headgate.Charge{Limit: headgate.MustParse(limit), Key: key, Cost: headgate.MustCost(cost)})
	}
	return list
}

func inUse(t *testing.T, l *headgate.Limiter, limit, key string) string {
	t.Helper()
	s, err := l.Inspect(context.Background(), headgate.MustParse(limit), key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

func TestOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		order := l.Once("order 4711", time.Minute)
		ask := charges("k", "2 of token-bucket 1/s burst 3", "1 of sliding-log 5/1h")
		for i := range 3 {
			d, err := order.Take(ctx, ask...)
			if err != nil || !d.Allowed || d.Replayed != (i > 0) {
				t.Errorf("asked %d times: %+v, %v", i+1, d, err)
			}
		}
		if got := inUse(t, l, "sliding-log 5/1h", "k"); got != "1" {
			t.Errorf("%s are charged", got)
		}
		if _, err := order.Take(ctx, ask[:1]...); !errors.Is(err, headgate.ErrReused) {
			t.Errorf("an id for other charges: %v", err)
		}
		other := l.Once("another", 0)
		if d, err := other.Take(ctx, ask...); err != nil || d.Allowed || d.Replayed {
			t.Errorf("without room: %+v, %v", d, err)
		}
		time.Sleep(time.Second)
		if d, err := other.Take(ctx, ask...); err != nil || !d.Allowed || d.Replayed {
			t.Errorf("what was refused is decided again: %+v, %v", d, err)
		}
		time.Sleep(time.Minute)
		if d, err := order.Take(ctx, ask...); err != nil || !d.Allowed || d.Replayed {
			t.Errorf("beyond its life: %+v, %v", d, err)
		}
	})
}

func TestOnceInABatch(t *testing.T) {
	t.Parallel()
	l, _ := newExampleLimiter()
	ask := charges("k", "1 of fixed-window 2/1h")
	answers, err := l.Batch(context.Background(), []headgate.Request{
		{Charges: ask, ID: "a"},
		{Charges: ask, ID: "a"},
		{Charges: ask, ID: "b"},
		{Charges: ask, ID: "c"},
		{Charges: charges("k", "2 of fixed-window 2/1h"), ID: "a"},
		{Charges: ask, ID: "d", Check: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct {
		allowed, replayed bool
		err               error
	}{
		{true, false, nil},
		{true, true, nil},
		{true, false, nil},
		{},
		{err: headgate.ErrReused},
		{err: headgate.ErrInvalid},
	} {
		if d := answers[i].Decision; d.Allowed != want.allowed || d.Replayed != want.replayed ||
			!errors.Is(answers[i].Err, want.err) {
			t.Errorf("answer %d: %+v", i, answers[i])
		}
	}
}

func TestReserveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "2 of token-bucket 1/s burst 2", "2 of gcra 10/s burst 5")
		reserve := func(id string) *headgate.Reservation {
			r, err := l.Once(id, 0).Reserve(ctx, time.Minute, ask...)
			if err != nil || !r.Decision.Allowed {
				t.Fatalf("%s: %+v, %v", id, r, err)
			}
			return r
		}
		reserve("first")
		second := reserve("second")
		time.Sleep(500 * time.Millisecond)
		again := reserve("second")
		if !again.Decision.Replayed || !again.StartAt.Equal(second.StartAt) || again.Delay() != 1500*time.Millisecond {
			t.Errorf("asked again: starts at %v after %v, want %v", again.StartAt, again.Delay(), second.StartAt)
		}
		// In another process, who knows the id and the charges.
		elsewhere := l.Once("second", 0)
		actual := charges("k", "1 of token-bucket 1/s burst 2")
		for range 2 { // and does not know whether it was heard
			if by, err := elsewhere.Settle(ctx, actual...); err != nil || len(by) != 1 {
				t.Errorf("settled by %v, %v", by, err)
			}
		}
		if _, err := elsewhere.Cancel(ctx, ask...); !errors.Is(err, headgate.ErrSettled) {
			t.Errorf("cancelled after one of two was settled: %v", err)
		}
		if by, err := elsewhere.Cancel(ctx, ask[1]); err != nil || by[0].String() != "2" {
			t.Errorf("the other charge: %v, %v", by, err)
		}
		if _, err := again.Settle(ctx, headgate.MustCost("2"), headgate.Units(0)); !errors.Is(
			err, headgate.ErrSettled) {
			t.Errorf("settled by its reservation: %v", err)
		}
	})
}

func TestSettleErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "2 of fixed-window 5/1h")
		settle := func(id string, c ...headgate.Charge) error {
			_, err := l.Once(id, time.Minute).Settle(ctx, c...)
			return err
		}
		if _, err := l.Once("known", time.Minute).Take(ctx, ask...); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			err  error
			want error
		}{
			"an id that is not known": {settle("unknown", ask...), headgate.ErrUnknownID},
			"a charge that was not made": {
				settle("known", charges("k", "1 of fixed-window 6/1h")...),
				headgate.ErrUnknownID,
			},
			"a negative cost": {settle("known",
				headgate.Charge{Limit: ask[0].Limit, Key: "k", Cost: headgate.Units(-1)}), headgate.ErrInvalid},
			"no charge":   {settle("known"), headgate.ErrInvalid},
			"no id":       {settle("", ask...), headgate.ErrInvalid},
			"a long id":   {settle(strings.Repeat("x", 256), ask...), headgate.ErrInvalid},
			"a key twice": {settle("known", ask[0], ask[0]), headgate.ErrInvalid},
		} {
			if !errors.Is(tt.err, tt.want) {
				t.Errorf("%s: %v", name, tt.err)
			}
		}
		if got := inUse(t, l, "fixed-window 5/1h", "k"); got != "2" {
			t.Errorf("%s are charged after errors, want 2", got)
		}
		time.Sleep(time.Minute)
		if err := settle("known", ask...); !errors.Is(err, headgate.ErrUnknownID) {
			t.Errorf("an id whose life is over: %v", err)
		}
	})
}

// TestReservationsOfSeveralLimits checks that several charges start together, when the last of them may.
func TestReservationsOfSeveralLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		ask := charges("k", "1 of token-bucket 1/s burst 1", "1 of gcra 10/s burst 2")
		begin := time.Now()
		for i := range 4 {
			r, err := l.Reserve(ctx, time.Minute, ask...)
			if err != nil || r.StartAt.Sub(begin) != time.Duration(i)*time.Second {
				t.Fatalf("turn %d starts after %v, %v", i, r.StartAt.Sub(begin), err)
			}
		}
		// A caller of the quick limit alone would be too many at that start.
		quick := charges("k", "2 of gcra 10/s burst 2")
		if r, err := l.Reserve(ctx, time.Minute, quick...); err != nil || r.Delay() != 3100*time.Millisecond {
			t.Errorf("starts after %v, %v", r.Delay(), err)
		}
		mixed := append(charges("k", "1 of fixed-window 1/1h"), ask...)
		r, err := l.Reserve(ctx, time.Minute, mixed...)
		if err != nil || r.Decision.Allowed {
			t.Errorf("with a limit that gives no turns: %+v, %v", r.Decision, err)
		}
		if err := l.Wait(ctx, mixed...); err != nil || time.Since(begin) < 4*time.Second {
			t.Errorf("waited %v, %v", time.Since(begin), err)
		}
	})
}

// TestAnExtensionIsAboutTheExtendedCharge extends one of two charges. The other needs nothing more, and had a smaller
// share left when it was admitted.
func TestAnExtensionIsAboutTheExtendedCharge(t *testing.T) {
	t.Parallel()
	limiter, _ := newExampleLimiter()
	a, b := headgate.MustParse("fixed-window 100/1h"), headgate.MustParse("fixed-window 50/1h")
	charges := func(n int64) []headgate.Charge {
		return []headgate.Charge{
			{Limit: b, Key: "k", Cost: headgate.Units(40)}, {Limit: a, Key: "k", Cost: headgate.Units(n)},
		}
	}
	once := limiter.Once("id", 0)
	if _, err := once.Take(t.Context(), charges(10)...); err != nil {
		t.Fatal(err)
	}
	e, err := once.Extend(t.Context(), charges(30)...)
	if d := e.Decision; err != nil || !d.Allowed || d.Replayed || d.LimitName != a.Name() || d.Remaining != 70 ||
		fmt.Sprint(e.Charged) != "[40 30]" {
		t.Errorf("%+v, %v", e, err)
	}
	e, err = once.Extend(t.Context(), charges(120)...)
	if d := e.Decision; err != nil || d.Allowed || d.LimitName != a.Name() || fmt.Sprint(e.Charged) != "[40 30]" ||
		len(d.Each) != 2 || !d.Each[0].Allowed || d.Each[1].Allowed {
		t.Errorf("%+v, %v", e, err)
	}
}
