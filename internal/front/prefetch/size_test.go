package prefetch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/memory"
)

// TestSizeOfAFetch takes units at given times. A unit is 10 credits, and the prefetch is 100 units, for a second.
func TestSizeOfAFetch(t *testing.T) {
	type step struct {
		after   time.Duration // the pause before the take
		units   int64
		granted int64 // by the store, in all steps so far
		via     law.Via
	}
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"by the pace of a life": {
			{0, 1, 1, law.ViaStore},
			{500 * ms, 1, 4, law.ViaStore}, // 1 + 2: one in half a life is two in a life
			{0, 1, 4, law.ViaPrefetch},
			{10 * ms, 1, 4, law.ViaPrefetch},
			{740 * ms, 1, 9, law.ViaStore}, // 1 + 4: three in three quarters of a life are four in a life
			{0, 4, 9, law.ViaPrefetch},
			{ms, 1, 30, law.ViaStore}, // 1 + 20: at most four times the 5 since the last fetch
		},
		"no more than the prefetch": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore}, // 10 + 40: at most four times the 10 since the last fetch
			{0, 40, 60, law.ViaPrefetch},
			{ms, 10, 170, law.ViaStore}, // 10 + 100: four times 50 would be 200
			{0, 99, 170, law.ViaPrefetch},
			{0, 1, 170, law.ViaPrefetch},
		},
		"less what is left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{ms, 41, 101, law.ViaStore}, // 41 alone: 60, the prefetch less the 40 that are left, hold no second 41
		},
		"less the thirty that are left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{0, 10, 60, law.ViaPrefetch},
			{ms, 36, 132, law.ViaStore}, // 36 + 36: 70, the prefetch less the 30 that are left, hold one more 36
		},
		"less the ten that are left": {
			{0, 10, 10, law.ViaStore},
			{ms, 10, 60, law.ViaStore},
			{0, 30, 60, law.ViaPrefetch},
			{ms, 11, 159, law.ViaStore}, // 11 + 8 x 11: 90, the prefetch less the 10 that are left, hold eight more
		},
		"in multiples of the cost": {
			{0, 3, 3, law.ViaStore},
			{500 * ms, 3, 12, law.ViaStore},
			{0, 3, 12, law.ViaPrefetch},
			{0, 4, 40, law.ViaStore}, // 4 + 6 x 4: at most four times the 6 since the last fetch
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
				inner := &countingStore{Store: memory.New(&memory.Config{Clock: clock})}
				s := prefetch.New(inner)
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
					if inner.credits != 10*step.granted || out.Via != step.via || out.Granted != 1 ||
						out.Clock != clock() {
						t.Errorf("step %d: got %d units, %+v; want %+v", i, inner.credits/10, outs[0], step)
					}
				}
				time.Sleep(time.Second)
				s.Close()
			})
		})
	}
}
