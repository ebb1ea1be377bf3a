package prefetch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestHowMuchIsTakenAhead asks at given times, and says how many units the store has granted by then. A unit is 10
// credits; at most 100 units are taken ahead, for a second.
func TestHowMuchIsTakenAhead(t *testing.T) {
	type step struct {
		after time.Duration
		units int64
		taken int64
		via   law.Via
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"by the pace of a life": {
			{0, 1, 1, law.ViaStore},
			{500 * ms, 1, 4, law.ViaStore}, // one in half a life: two in a life
			{0, 1, 4, law.ViaPrefetch},
			{10 * ms, 1, 4, law.ViaPrefetch},
			{740 * ms, 1, 9, law.ViaStore}, // three in three quarters: four
			{0, 4, 9, law.ViaPrefetch},
			{ms, 1, 30, law.ViaStore}, // at most four times what has gone
		},
		"no more than the prefetch": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore}, // and four times as many
			{0, 40, 60, law.ViaPrefetch},
			{ms, 10, 170, law.ViaStore}, // four times 50 would be 200
			{0, 99, 170, law.ViaPrefetch},
			{0, 1, 170, law.ViaPrefetch},
		},
		"less what is left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{ms, 41, 101, law.ViaStore}, // 40 are left: for 41 more nothing is taken ahead but their number
		},
		"less the thirty that are left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{0, 10, 60, law.ViaPrefetch},
			{ms, 36, 132, law.ViaStore}, // 70 more at most, not four times 20: one more of 36
		},
		"less the ten that are left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{0, 30, 60, law.ViaPrefetch},
			{ms, 11, 159, law.ViaStore}, // 90 more at most: eight more of 11
		},
		"in multiples of the cost": {
			{0, 3, 3, law.ViaStore},
			{500 * ms, 3, 12, law.ViaStore},
			{0, 3, 12, law.ViaPrefetch},
			{0, 4, 40, law.ViaStore}, // six at once: 24, which are six times four
		},
		"nothing while it is slow": {
			{0, 1, 1, law.ViaStore},
			{1001 * ms, 1, 2, law.ViaStore},
			{5000 * ms, 1, 3, law.ViaStore},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := func() int64 { return time.Now().UnixMicro() }
				c := &till{Store: memory.New(&memory.Config{Clock: clock})}
				s := prefetch.New(c)
				p := law.Params{
					Kind: law.Bucket, Unit: 10, Capacity: 10_000, Step: 1_000_000, Drain: 10,
					Prefetch: 1000, PrefetchLife: 1_000_000,
				}
				for i, step := range steps {
					time.Sleep(step.after)
					outs := make([]law.Outcome, 1)
					op := law.Op{
						Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Params: p, Cost: 10 * step.units, Count: 1,
					}
					if err := s.Apply(t.Context(), []law.Op{op}, outs); err != nil {
						t.Fatal(err)
					}
					out := &outs[0]
					if c.taken != 10*step.taken || out.Via != step.via || out.Granted != 1 || out.Clock != clock() {
						t.Errorf("step %d, %+v: %d units taken; %+v", i, step, c.taken/10, outs[0])
					}
				}
				time.Sleep(time.Second)
				s.Close()
			})
		})
	}
}
