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
	for _, tt := range []struct{ in, want string }{
		{"10%", "10%"},
		{"2.50%", "2.5%"},
		{"0.000001%", "0.000001%"},
		{"99.999999999%", "99.999999999%"},
		{"100", "100"},
		{"0.5", "0.5"},
	} {
		h, err := headgate.ParseHeadroom(tt.in)
		if err != nil || h.String() != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.in, h, err, tt.want)
		}
		var back headgate.Headroom
		if text, err := h.MarshalText(); err != nil || back.UnmarshalText(text) != nil || back != h {
			t.Errorf("%s: as text %s and back %s, %v", tt.in, text, back, err)
		}
	}
	if headgate.Percent(10) != headgate.MustHeadroom("10%") || headgate.Keep(headgate.Units(5)) != headgate.MustHeadroom("5") {
		t.Error("what is built differs from what is parsed")
	}
	for _, in := range []string{"", "%", "-1", "-10%", "0%", "0", "100%", "250%", "1e2", "ten", "10 %", "NaN%"} {
		if h, err := headgate.ParseHeadroom(in); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%q: got %s, %v", in, h, err)
		}
	}
}

// TestHeadroomIsLeftToOthers charges each kind of limit up to the headroom, and then the rest.
func TestHeadroomIsLeftToOthers(t *testing.T) {
	for _, notation := range []string{
		"token-bucket 10/h", "leaky-bucket 10/h capacity 10", "gcra 10/h burst 10", "fixed-window 10/1h",
		"sliding-window 10/1h", "sliding-log 10/1h",
	} {
		for _, keep := range []headgate.Headroom{headgate.Percent(15), headgate.Keep(headgate.MustCost("1.5"))} {
			t.Run(fmt.Sprint(notation, " ", keep), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { // no window ends meanwhile
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
	batch := headgate.Charge{Limit: limit, Key: "k", Keep: keep}
	for i := range 12 {
		ahead, err := l.Check(t.Context(), batch)
		d, err2 := l.Take(t.Context(), batch)
		if err != nil || err2 != nil || d.Allowed != (i < 8) || ahead.Allowed != d.Allowed {
			t.Fatalf("batch %d: %+v, before it %+v, %v, %v", i, d, ahead, err, err2)
		}
		if !d.Allowed && (d.Remaining != 2 || d.RetryAfter <= 0 || d.RetryAfter > 2*time.Hour) {
			t.Errorf("the refusal says %+v", d)
		}
	}
	for i := range 3 {
		if d, err := l.Allow(t.Context(), limit, "k"); err != nil || d.Allowed != (i < 2) {
			t.Errorf("interactive %d: %+v, %v", i, d, err)
		}
	}
}

func TestHeadroomOfEveryVerb(t *testing.T) {
	ctx, l := t.Context(), headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 10/h")
	five := func(key string) headgate.Charge {
		return headgate.Charge{Limit: limit, Key: key, Cost: headgate.Units(5), Keep: headgate.Percent(10)}
	}
	f, err := l.FillUp(ctx, headgate.Charge{Limit: limit, Key: "fill", Cost: headgate.Units(20), Keep: headgate.Percent(10)})
	if err != nil || f.Accepted != headgate.Units(9) || f.Brim {
		t.Errorf("FillUp: %+v, %v", f, err)
	}
	for range 2 {
		a, err := l.Batch(ctx, []headgate.Request{{Charges: []headgate.Charge{five("batch")}}})
		if err != nil || a[0].Err != nil {
			t.Fatal(err, a[0].Err)
		}
		f.Decision = a[0].Decision
	}
	if f.Decision.Allowed || f.Decision.Remaining != 5 {
		t.Errorf("Batch: %+v", f.Decision)
	}
	for _, want := range []bool{true, false} {
		if d, err := l.Once(fmt.Sprint("id", want), 0).Take(ctx, five("once")); err != nil || d.Allowed != want {
			t.Errorf("Once: %+v, %v", d, err)
		}
	}
	for _, want := range []bool{true, false} { // it cannot start later
		r, err := l.Reserve(ctx, 10*time.Hour, five("reserve"))
		if err != nil || r.Decision.Allowed != want {
			t.Errorf("Reserve: %+v, %v", r, err)
		}
	}
	// All or none: the other limit is not charged.
	other := headgate.Charge{Limit: headgate.MustParse("fixed-window 100/1h"), Key: "other"}
	if d, err := l.Take(ctx, other, five("once")); err != nil || d.Allowed || d.LimitName != limit.Name() {
		t.Errorf("several: %+v, %v", d, err)
	}
	if d, err := l.Check(ctx, other); err != nil || d.Remaining != 100 {
		t.Errorf("the other: %+v, %v", d, err)
	}
	places := headgate.MustParse("concurrency 3 ttl 1m")
	for i := range 3 {
		lease, err := l.Acquire(ctx, headgate.Charge{Limit: places, Key: "k", Keep: headgate.Keep(headgate.Units(1))})
		if err != nil || lease.Decision.Allowed != (i < 2) {
			t.Errorf("Acquire %d: %+v, %v", i, lease.Decision, err)
		}
		defer lease.Release(context.WithoutCancel(ctx))
	}
}

func TestHeadroomThatLeavesNothing(t *testing.T) {
	l := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("gcra 10/h burst 10")
	for _, keep := range []headgate.Headroom{
		headgate.Percent(0), headgate.Percent(100), headgate.Percent(-5), headgate.Keep(headgate.Units(10)),
		headgate.Keep(headgate.Units(0)), headgate.Keep(headgate.Units(1 << 52)), headgate.MustHeadroom("99.99999999%"),
	} {
		_, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: keep})
		if invalid, ok := errors.AsType[*headgate.InvalidError](err); !ok || invalid.Field != "keep" {
			t.Errorf("%s: %v", keep, err)
		}
	}
}

func TestARefusalForHeadroomBlocksNobody(t *testing.T) {
	l := headgate.New(deny.New(memory.New(nil)), nil)
	limit := headgate.MustParse("fixed-window 10/1h from-first block 1h")
	for i := range 11 {
		d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: headgate.Percent(10)})
		if err != nil || d.Allowed != (i < 9) {
			t.Fatal(i, d, err)
		}
	}
	if d, err := l.Allow(t.Context(), limit, "k"); err != nil || !d.Allowed {
		t.Errorf("the tenth: %+v, %v", d, err)
	}
}

// TestAQueueWithHeadroomDoesNotHoldUpOthers lets a caller without headroom pass while another one waits with headroom.
func TestAQueueWithHeadroomDoesNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := headgate.New(memory.New(nil), nil)
		c := headgate.Charge{Limit: headgate.MustParse("sliding-log 10/1h"), Key: "k", Keep: headgate.Percent(50)}
		for range 5 {
			if err := l.Wait(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		waits := make(chan error, 1)
		go func() { waits <- l.Wait(t.Context(), c) }()
		synctest.Wait()
		c.Keep = headgate.Headroom{}
		began := time.Now()
		for range 5 {
			if err := l.Wait(t.Context(), c); err != nil || time.Since(began) > 0 {
				t.Errorf("waited %s, %v", time.Since(began), err)
			}
		}
		if err := <-waits; err != nil || time.Since(began) < time.Hour {
			t.Errorf("the other: after %s, %v", time.Since(began), err)
		}
	})
}

// refusalCounter is a store that counts the batches in which a charge was refused.
type refusalCounter struct {
	store.Store
	refused atomic.Int64 // questions of which one was refused
}

func (c *refusalCounter) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := c.Store.Apply(ctx, ops, outs)
	for i := range outs {
		if outs[i].Granted < ops[i].Count {
			c.refused.Add(1)
			break
		}
	}
	return err
}

// TestBatchLoadBesideAnInteractiveCaller sends ten times the limit with a tenth of it as headroom, beside a caller that
// stays within that tenth.
func TestBatchLoadBesideAnInteractiveCaller(t *testing.T) {
	for notation, least := range map[string]float64{ // the share of the limit that is used, at least
		"token-bucket 100/10s burst 100":    0.99,
		"leaky-bucket 100/10s capacity 100": 0.99,
		"gcra 100/10s burst 100":            0.99,
		"fixed-window 100/10s":              0.90,
		"sliding-window 100/10s":            0.89,
		"sliding-log 100/10s":               0.90,
	} {
		t.Run(notation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &refusalCounter{Store: memory.New(nil)}
				s := deny.New(inner)
				defer s.Close()
				l, limit := headgate.New(s, nil), headgate.MustParse(notation)
				seconds := tier.Pick(30, 600, 6000)
				var batch, interactive, turnedAway int
				for n := range seconds * 100 {
					d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Keep: headgate.Percent(10)})
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						batch++
					}
					if n%100 == 50 {
						d, err := l.Allow(t.Context(), limit, "k")
						if err != nil {
							t.Fatal(err)
						}
						if interactive++; !d.Allowed {
							turnedAway++
						}
					}
					time.Sleep(10 * time.Millisecond)
				}
				used := float64(batch+interactive-turnedAway) / float64(10*seconds)
				t.Logf("%d batch, %d interactive, %d of them refused, %.3f used, %.1f refused questions a second",
					batch, interactive, turnedAway, used, float64(inner.refused.Load())/float64(seconds))
				if turnedAway > 0 || used < least || float64(inner.refused.Load())/float64(seconds) > 2 {
					t.Errorf("want none refused, %.2f used, and 2 refused questions a second at most", least)
				}
				most := limit.Bound().In(time.Duration(seconds) * time.Second)
				if most.Float64() < float64(batch+interactive) {
					t.Errorf("more than %v passed", most)
				}
			})
		})
	}
}
