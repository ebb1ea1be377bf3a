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
func charges(key string, texts ...string) []headgate.Charge {
	var list []headgate.Charge
	for _, text := range texts {
		cost, limit, _ := strings.Cut(text, " of ")
		list = append(list, headgate.Charge{Limit: headgate.MustParse(limit), Key: key, Cost: headgate.MustCost(cost)})
	}
	return list
}

// inUse returns the usage that Inspect states for a key of a limit.
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
		request := charges("k", "2 of token-bucket 1/s burst 3", "1 of sliding-log 5/1h")
		for i := range 3 {
			d, err := order.Take(ctx, request...)
			if err != nil || !d.Allowed || d.Replayed != (i > 0) {
				t.Errorf("take %d: %+v, %v; want an admission, replayed %v", i+1, d, err, i > 0)
			}
		}
		if got := inUse(t, l, "sliding-log 5/1h", "k"); got != "1" {
			t.Errorf("%s in use, want 1", got)
		}
		if _, err := order.Take(ctx, request[:1]...); !errors.Is(err, headgate.ErrReused) {
			t.Errorf("an id with other charges: %v, want ErrReused", err)
		}
		other := l.Once("another", 0)
		if d, err := other.Take(ctx, request...); err != nil || d.Allowed || d.Replayed {
			t.Errorf("another id without room: %+v, %v; want a refusal", d, err)
		}
		time.Sleep(time.Second)
		if d, err := other.Take(ctx, request...); err != nil || !d.Allowed || d.Replayed {
			t.Errorf("the refused id a second later: %+v, %v; want an admission, not replayed", d, err)
		}
		time.Sleep(time.Minute)
		if d, err := order.Take(ctx, request...); err != nil || !d.Allowed || d.Replayed {
			t.Errorf("an id whose life is over: %+v, %v; want an admission, not replayed", d, err)
		}
	})
}

func TestOnceInABatch(t *testing.T) {
	t.Parallel()
	l, _ := newExampleLimiter()
	request := charges("k", "1 of fixed-window 2/1h")
	answers, err := l.Batch(context.Background(), []headgate.Request{
		{Charges: request, ID: "a"},
		{Charges: request, ID: "a"},
		{Charges: request, ID: "b"},
		{Charges: request, ID: "c"},
		{Charges: charges("k", "2 of fixed-window 2/1h"), ID: "a"},
		{Charges: request, ID: "d", Check: true},
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
		{}, // refused
		{err: headgate.ErrReused},
		{err: headgate.ErrInvalid},
	} {
		if d := answers[i].Decision; d.Allowed != want.allowed || d.Replayed != want.replayed ||
			!errors.Is(answers[i].Err, want.err) {
			t.Errorf("answer %d: got %+v, want %+v", i, answers[i], want)
		}
	}
}

func TestReserveOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "2 of token-bucket 1/s burst 2", "2 of gcra 10/s burst 5")
		reserve := func(id string) *headgate.Reservation {
			r, err := l.Once(id, 0).Reserve(ctx, time.Minute, request...)
			if err != nil || !r.Decision.Allowed {
				t.Fatalf("%s: %+v, %v", id, r, err)
			}
			return r
		}
		reserve("first")
		second := reserve("second")
		time.Sleep(500 * time.Millisecond)
		retry := reserve("second")
		if !retry.Decision.Replayed || !retry.StartAt.Equal(second.StartAt) || retry.Delay() != 1500*time.Millisecond {
			t.Errorf("reserved again: starts at %v after %v, want %v", retry.StartAt, retry.Delay(), second.StartAt)
		}
		// Another process settles. It knows nothing but the id and the charges.
		once := l.Once("second", 0)
		actual := charges("k", "1 of token-bucket 1/s burst 2")
		for _, want := range []int64{1, 0} { // a retry of the same settlement is no error, and returns nothing
			returned, err := once.Settle(ctx, actual...)
			if err != nil || len(returned) != 1 || returned[0] != headgate.Units(want) {
				t.Errorf("settle: returned %v, %v; want %d", returned, err, want)
			}
		}
		if _, err := once.Cancel(ctx, request...); !errors.Is(err, headgate.ErrSettled) {
			t.Errorf("cancel after one of two charges was settled: %v, want ErrSettled", err)
		}
		if returned, err := once.Cancel(ctx, request[1]); err != nil || returned[0].String() != "2" {
			t.Errorf("cancel of the other charge: returned %v, %v; want 2", returned, err)
		}
		if _, err := retry.Settle(ctx, headgate.MustCost("2"), headgate.Units(0)); !errors.Is(
			err, headgate.ErrSettled) {
			t.Errorf("settle by the reservation: %v, want ErrSettled", err)
		}
	})
}

func TestSettleErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "2 of fixed-window 5/1h")
		settle := func(id string, c ...headgate.Charge) error {
			_, err := l.Once(id, time.Minute).Settle(ctx, c...)
			return err
		}
		if _, err := l.Once("known", time.Minute).Take(ctx, request...); err != nil {
			t.Fatal(err)
		}
		for name, tt := range map[string]struct {
			err  error
			want error
		}{
			"an id that is not known": {settle("unknown", request...), headgate.ErrUnknownID},
			"a charge that was not made": {
				settle("known", charges("k", "1 of fixed-window 6/1h")...),
				headgate.ErrUnknownID,
			},
			"a negative cost": {settle("known",
				headgate.Charge{Limit: request[0].Limit, Key: "k", Cost: headgate.Units(-1)}), headgate.ErrInvalid},
			"no charge":   {settle("known"), headgate.ErrInvalid},
			"no id":       {settle("", request...), headgate.ErrInvalid},
			"a long id":   {settle(strings.Repeat("x", 256), request...), headgate.ErrInvalid},
			"a key twice": {settle("known", request[0], request[0]), headgate.ErrInvalid},
		} {
			if !errors.Is(tt.err, tt.want) {
				t.Errorf("%s: %v, want %v", name, tt.err, tt.want)
			}
		}
		if got := inUse(t, l, "fixed-window 5/1h", "k"); got != "2" {
			t.Errorf("%s are charged after errors, want 2", got)
		}
		time.Sleep(time.Minute)
		if err := settle("known", request...); !errors.Is(err, headgate.ErrUnknownID) {
			t.Errorf("an id whose life is over: %v, want ErrUnknownID", err)
		}
	})
}

// TestReservationsOfSeveralLimitsStartTogether checks that a reservation starts when the last of its charges can.
func TestReservationsOfSeveralLimitsStartTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		l := headgate.New(memory.New(nil), nil)
		request := charges("k", "1 of token-bucket 1/s burst 1", "1 of gcra 10/s burst 2")
		begin := time.Now()
		for i := range 4 {
			r, err := l.Reserve(ctx, time.Minute, request...)
			if err != nil || r.StartAt.Sub(begin) != time.Duration(i)*time.Second {
				t.Fatalf("reservation %d starts after %v, %v; want %d s", i, r.StartAt.Sub(begin), err, i)
			}
		}
		// The last reservation charges gcra at 3 s, so 2 units of gcra alone start 100 ms later.
		gcra := charges("k", "2 of gcra 10/s burst 2")
		if r, err := l.Reserve(ctx, time.Minute, gcra...); err != nil || r.Delay() != 3100*time.Millisecond {
			t.Errorf("2 of gcra start after %v, %v; want 3.1 s", r.Delay(), err)
		}
		withWindow := append(charges("k", "1 of fixed-window 1/1h"), request...)
		r, err := l.Reserve(ctx, time.Minute, withWindow...)
		if err != nil || r.Decision.Allowed {
			t.Errorf("with a fixed window, which never starts later: %+v, %v; want a refusal", r.Decision, err)
		}
		if err := l.Wait(ctx, withWindow...); err != nil || time.Since(begin) < 4*time.Second {
			t.Errorf("waited %v, %v; want at least 4 s", time.Since(begin), err)
		}
	})
}

// TestExtendDecidesAboutTheExtendedCharge checks that the Decision is about the one charge that grows.
func TestExtendDecidesAboutTheExtendedCharge(t *testing.T) {
	t.Parallel()
	limiter, _ := newExampleLimiter()
	growing, constant := headgate.MustParse("fixed-window 100/1h"), headgate.MustParse("fixed-window 50/1h")
	request := func(n int64) []headgate.Charge {
		return []headgate.Charge{
			{Limit: constant, Key: "k", Cost: headgate.Units(40)}, {Limit: growing, Key: "k", Cost: headgate.Units(n)},
		}
	}
	once := limiter.Once("id", 0)
	if _, err := once.Take(t.Context(), request(10)...); err != nil {
		t.Fatal(err)
	}
	e, err := once.Extend(t.Context(), request(30)...)
	if d := e.Decision; err != nil || !d.Allowed || d.Replayed || d.LimitName != growing.Name() || d.Remaining != 70 ||
		fmt.Sprint(e.Charged) != "[40 30]" {
		t.Errorf("extend to 30: %+v, %v; want 30 charged and 70 remaining", e, err)
	}
	e, err = once.Extend(t.Context(), request(120)...)
	if d := e.Decision; err != nil || d.Allowed || d.LimitName != growing.Name() ||
		fmt.Sprint(e.Charged) != "[40 30]" || len(d.Each) != 2 || !d.Each[0].Allowed || d.Each[1].Allowed {
		t.Errorf("extend to 120: %+v, %v; want a refusal that leaves 30 charged", e, err)
	}
}
