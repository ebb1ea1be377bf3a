package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestHeadroomNotation(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"10%", "10%"},
		{"2.50%", "2.5%"},
		{"0.000001%", "0.000001%"},
		{"99.999999999%", "99.999999999%"},
		{"100", "100"},
		{"0.5", "0.5"},
	} {
		h, err := headgate.ParseHeadroom(tt.text)
		if err != nil || h.String() != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.text, h, err, tt.want)
		}
		var unmarshalled headgate.Headroom
		if text, err := h.MarshalText(); err != nil || unmarshalled.UnmarshalText(text) != nil || unmarshalled != h {
			t.Errorf("%s: marshals to %s, which unmarshals to %s, %v; want %s", tt.text, text, unmarshalled, err, h)
		}
	}
	if headgate.Percent(10) != headgate.MustHeadroom("10%") || headgate.Keep(headgate.Units(5)) != headgate.MustHeadroom("5") {
		t.Error("Percent(10) is not ParseHeadroom(10%), or Keep(5) is not ParseHeadroom(5)")
	}
	for _, text := range []string{"", "%", "-1", "-10%", "0%", "0", "100%", "250%", "1e2", "ten", "10 %", "NaN%"} {
		if h, err := headgate.ParseHeadroom(text); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%q: got %s, %v; want ErrInvalid", text, h, err)
		}
		h := headgate.Percent(10)
		if err := h.UnmarshalText([]byte(text)); (err == nil) != (text == "") || err != nil && h != headgate.Percent(10) {
			t.Errorf("%q: UnmarshalText got %s, %v; an error leaves 10%% as it was", text, h, err)
		}
	}
}

// TestHeadroomIsLeftToOthers checks that 8 units pass a limit of 10 with a headroom of 1.5, and then 2 without.
func TestHeadroomIsLeftToOthers(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 10/h", "leaky-bucket 10/h capacity 10", "gcra 10/h burst 10", "fixed-window 10/1h",
		"sliding-window 10/1h", "sliding-log 10/1h",
	} {
		for _, keep := range []headgate.Headroom{headgate.Percent(15), headgate.Keep(headgate.MustCost("1.5"))} {
			t.Run(fmt.Sprint(notation, " ", keep), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // the clock stands still, so no window ends
					checkHeadroomIsLeft(t, headgate.MustParse(notation), keep)
				})
			})
		}
	}
}

func checkHeadroomIsLeft(t *testing.T, limit headgate.Limit, keep headgate.Headroom) {
	s := deny.New(memory.New(nil))
	defer s.Close()
	l := headgate.New(s, nil)
	charge := headgate.Charge{Limit: limit, Key: "k", Keep: keep}
	for i := range 12 {
		check, err := l.Check(t.Context(), charge)
		d, err2 := l.Take(t.Context(), charge)
		if err != nil || err2 != nil || d.Allowed != (i < 8) || check.Allowed != d.Allowed {
			t.Fatalf("take %d: %+v, the check before %+v, %v, %v; want %v", i, d, check, err, err2, i < 8)
		}
		if !d.Allowed && (d.Remaining != 2 || d.RetryAfter <= 0 || d.RetryAfter > 2*time.Hour) {
			t.Errorf("got %+v, want 2 remaining and a RetryAfter of up to 2 h", d)
		}
	}
	for i := range 3 {
		if d, err := l.Allow(t.Context(), limit, "k"); err != nil || d.Allowed != (i < 2) {
			t.Errorf("take %d without headroom: %+v, %v; want %v", i, d, err, i < 2)
		}
	}
}

func TestVerbsLeaveTheHeadroom(t *testing.T) {
	ctx, l := t.Context(), headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 10/h")
	chargeOf5 := func(key string) headgate.Charge {
		return headgate.Charge{Limit: limit, Key: key, Cost: headgate.Units(5), Keep: headgate.Percent(10)}
	}
	f, err := l.FillUp(ctx, headgate.Charge{Limit: limit, Key: "fill", Cost: headgate.Units(20), Keep: headgate.Percent(10)})
	if err != nil || f.Accepted != headgate.Units(9) || f.Brim {
		t.Errorf("FillUp: %+v, %v; want 9 accepted", f, err)
	}
	var d headgate.Decision // of the last request
	for range 2 {
		a, err := l.Batch(ctx, []headgate.Request{{Charges: []headgate.Charge{chargeOf5("batch")}}})
		if err != nil || a[0].Err != nil {
			t.Fatal(err, a[0].Err)
		}
		d = a[0].Decision
	}
	if d.Allowed || d.Remaining != 5 {
		t.Errorf("Batch: %+v, want a refusal with 5 remaining", d)
	}
	for _, want := range []bool{true, false} {
		if d, err := l.Once(fmt.Sprint("id", want), 0).Take(ctx, chargeOf5("once")); err != nil || d.Allowed != want {
			t.Errorf("Once: %+v, %v; want %v", d, err, want)
		}
	}
	for _, want := range []bool{true, false} { // a charge with headroom cannot start later
		r, err := l.Reserve(ctx, 10*time.Hour, chargeOf5("reserve"))
		if err != nil || r.Decision.Allowed != want {
			t.Errorf("Reserve: %+v, %v; want %v", r, err, want)
		}
	}
	// If one charge is refused for its headroom, the other charge is not made.
	other := headgate.Charge{Limit: headgate.MustParse("fixed-window 100/1h"), Key: "other"}
	if d, err := l.Take(ctx, other, chargeOf5("once")); err != nil || d.Allowed || d.LimitName != limit.Name() {
		t.Errorf("two charges: %+v, %v; want a refusal by %s", d, err, limit)
	}
	if d, err := l.Check(ctx, other); err != nil || d.Remaining != 100 {
		t.Errorf("the other charge: %+v, %v; want 100 remaining", d, err)
	}
	jobs := headgate.MustParse("concurrency 3 ttl 1m")
	for i := range 3 {
		lease, err := l.Acquire(ctx, headgate.Charge{Limit: jobs, Key: "k", Keep: headgate.Keep(headgate.Units(1))})
		if err != nil || lease.Decision.Allowed != (i < 2) {
			t.Errorf("Acquire %d: %+v, %v; want %v", i, lease.Decision, err, i < 2)
		}
		defer lease.Release(context.WithoutCancel(ctx))
	}
}

func TestInvalidHeadroomIsRefused(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("gcra 10/h burst 10")
	for _, keep := range []headgate.Headroom{
		headgate.Percent(0), headgate.Percent(100), headgate.Percent(-5), headgate.Keep(headgate.Units(10)),
		headgate.Keep(headgate.Units(0)), headgate.Keep(headgate.Units(1 << 52)), headgate.MustHeadroom("99.99999999%"),
	} {
		_, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: keep})
		if invalid, ok := errors.AsType[*headgate.InvalidError](err); !ok || invalid.Field != "keep" {
			t.Errorf("%s: %v, want an InvalidError about keep", keep, err)
		}
	}
}

func TestARefusalForHeadroomBlocksNoKey(t *testing.T) {
	l := headgate.New(deny.New(memory.New(nil)), nil)
	limit := headgate.MustParse("fixed-window 10/1h from-first block 1h")
	for i := range 11 {
		d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: headgate.Percent(10)})
		if err != nil || d.Allowed != (i < 9) {
			t.Fatal(i, d, err)
		}
	}
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("the tenth unit, without headroom: %+v, %v; want an admission", d, err)
	}
}

// TestWaitWithHeadroomDoesNotDelayOthers checks that Wait without headroom passes a waiter with headroom.
func TestWaitWithHeadroomDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(memory.New(nil), nil)
		charge := headgate.Charge{Limit: headgate.MustParse("sliding-log 10/1h"), Key: "k", Keep: headgate.Percent(50)}
		for range 5 {
			if err := l.Wait(t.Context(), charge); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		errs := make(chan error, 1)
		go func() { errs <- l.Wait(t.Context(), charge) }()
		synctest.Wait()
		charge.Keep = headgate.Headroom{}
		begin := time.Now()
		for range 5 {
			if err := l.Wait(t.Context(), charge); err != nil || time.Since(begin) > 0 {
				t.Errorf("without headroom: waited %s, %v; want 0 s", time.Since(begin), err)
			}
		}
		if err := <-errs; err != nil || time.Since(begin) < time.Hour {
			t.Errorf("with headroom: waited %s, %v; want an hour or more", time.Since(begin), err)
		}
	})
}

// refusalCountingStore is a store that counts the batches in which a charge was refused.
type refusalCountingStore struct {
	store.Store
	refusals atomic.Int64
}

func (s *refusalCountingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := s.Store.Apply(ctx, ops, outs)
	for i := range outs {
		if outs[i].Granted < ops[i].Count {
			s.refusals.Add(1)
			break
		}
	}
	return err
}

// TestBatchLoadBesideAnInteractiveCaller sends ten times the limit with a tenth of it as headroom, beside a caller that
// uses at most that tenth. That caller must never be refused, and most of the limit must be used.
func TestBatchLoadBesideAnInteractiveCaller(t *testing.T) {
	for notation, minUsage := range map[string]float64{ // minUsage: the part of the limit that must be used
		"token-bucket 100/10s burst 100":    0.99,
		"leaky-bucket 100/10s capacity 100": 0.99,
		"gcra 100/10s burst 100":            0.99,
		"fixed-window 100/10s":              0.90,
		"sliding-window 100/10s":            0.89,
		"sliding-log 100/10s":               0.90,
	} {
		t.Run(notation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				counter := &refusalCountingStore{Store: memory.New(nil)}
				s := deny.New(counter)
				defer s.Close()
				l, limit := headgate.New(s, nil), headgate.MustParse(notation)
				seconds := tier.Pick(30, 600, 6000)
				var batchTakes, interactiveTakes, interactiveRefusals int
				for i := range seconds * 100 {
					d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: headgate.Percent(10)})
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						batchTakes++
					}
					if i%100 == 50 {
						d, err := l.Allow(t.Context(), limit, "k")
						if err != nil {
							t.Fatal(err)
						}
						if interactiveTakes++; !d.Allowed {
							interactiveRefusals++
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				refusalRate := float64(counter.refusals.Load()) / float64(seconds)
				usage := float64(batchTakes+interactiveTakes-interactiveRefusals) / float64(10*seconds)
				t.Logf("%d batch, %d interactive, %d of them refused, %.3f used, %.1f refused calls a second",
					batchTakes, interactiveTakes, interactiveRefusals, usage, refusalRate)
				if interactiveRefusals > 0 || usage < minUsage || refusalRate > 2 {
					t.Errorf("want no interactive caller refused, %.2f used, and at most 2 refused calls a second", minUsage)
				}
				bound := limit.Bound().In(time.Duration(seconds) * time.Second)
				if bound.Float64() < float64(batchTakes+interactiveTakes) {
					t.Errorf("more than %v passed", bound)
				}
			})
		})
	}
}
