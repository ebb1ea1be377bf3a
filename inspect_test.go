package headgate_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// listedNotations are limits of every law and every anchor.
var listedNotations = []string{
	"token-bucket 5/1s", "token-bucket 100/s burst 7", "leaky-bucket 1.5/s capacity 3", "gcra 10/s burst 5",
	"interval 100/10s burst 300",
	"fixed-window 5/1s", "fixed-window 5/1s from-first", "fixed-window 5/day Europe/Berlin", "fixed-window 9/month",
	"fixed-window 3/hour",
	"sliding-window 100/1m", "sliding-log 5/1s", "sliding-log 5/2s history 1d", "concurrency 4 ttl 3s",
}

// TestListShowsWhatIsInUseNow compares a list with what Inspect returns for each key, at random times after random
// charges.
func TestListShowsWhatIsInUseNow(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range tier.Pick(30, 200, 2000) {
		now := time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC).UnixMicro()
		l := headgate.New(memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }}), nil)
		var limits []headgate.Limit
		for i, notation := range listedNotations {
			limits = append(limits, headgate.MustParse(notation))
			if i%2 == 1 {
				limit, err := headgate.ParseNamed("named-"+string(rune('a'+i)), notation)
				if err != nil {
					t.Fatal(err)
				}
				limits[i] = limit
			}
		}
		for range 1 + rng.IntN(60) {
			now += rng.Int64N(1 << rng.IntN(34))
			chargeAtRandom(t, l, rng, limits[rng.IntN(len(limits))])
		}
		now += rng.Int64N(1 << rng.IntN(34))
		known := listByLimit(t, l, limits...)
		unknown := listByLimit(t, l)
		for i, limit := range limits {
			want, err := l.Inspect(t.Context(), limit, "k")
			if err != nil {
				t.Fatal(err)
			}
			if !want.Exists {
				continue
			}
			got := known[limit.Name()]
			if got.Used != want.Used || got.Capacity != want.Capacity || got.Remaining != want.Remaining ||
				!got.EmptyAt.Equal(want.EmptyAt) {
				t.Errorf("%s: listed %+v, inspected %+v", listedNotations[i], got, want)
			}
			// Of a limit that is not known, as much is in use at most.
			got = unknown[limit.Name()]
			if got.Used.Float64() < want.Used.Float64() {
				t.Errorf("%s, unknown: listed %s, in use are %s", listedNotations[i], got.Used, want.Used)
			}
			if limit.Named() != (got.Remaining == -1) {
				t.Errorf("%s: remaining %d of a limit that is named: %v", listedNotations[i], got.Remaining,
					limit.Named())
			}
		}
	}
}

// chargeAtRandom makes one random charge of a key of a limit.
func chargeAtRandom(t *testing.T, l *headgate.Limiter, rng *rand.Rand, limit headgate.Limit) {
	t.Helper()
	ctx, c := context.Background(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(1 + rng.Int64N(3))}
	var err error
	switch n := rng.IntN(4); {
	case limit.Concurrency():
		var lease *headgate.Lease
		if lease, err = l.Acquire(ctx, c); err == nil {
			lease.Detach()
		}
	case n == 0:
		var r *headgate.Reservation
		if r, err = l.Reserve(ctx, time.Minute, c); err == nil && r.Decision.Allowed {
			_, err = r.Settle(ctx, headgate.Units(rng.Int64N(6)))
		}
	default:
		_, err = l.Take(ctx, c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listByLimit returns the cells of a store by the names of their limits.
func listByLimit(t *testing.T, l *headgate.Limiter, known ...headgate.Limit) map[string]headgate.Status {
	t.Helper()
	cells, err := l.List(t.Context(), store.Query{}, known...)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]headgate.Status{}
	for _, s := range cells {
		m[s.Limit] = s
	}
	return m
}

// TestListOfAnUnknownLimit checks that a cell alone shows when a limit of any kind is idle, and how far a bucket has
// drained.
func TestListOfAnUnknownLimit(t *testing.T) {
	t.Parallel()
	for _, notation := range listedNotations {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
		l := headgate.New(memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }}), nil)
		limit, err := headgate.ParseNamed("api", notation)
		if err != nil {
			t.Fatal(err)
		}
		c := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(2)}
		if limit.Concurrency() {
			lease, err := l.Acquire(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			lease.Detach()
		} else if _, err := l.Take(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if s := listByLimit(t, l)["api"]; s.Used != headgate.Units(2) {
			t.Errorf("%s: in use at once are %s", notation, s.Used)
		}
		empty := listByLimit(t, l)["api"].EmptyAt
		now += (empty.UnixMicro() - now) / 2
		at, half := listByLimit(t, l, limit)["api"], listByLimit(t, l)["api"]
		if off := half.Used.Float64() - at.Used.Float64(); off < 0 || off > 0.02 {
			t.Errorf("%s: half way %s are in use, listed are %s", notation, at.Used, half.Used)
		}
		now = empty.UnixMicro()
		if s := listByLimit(t, l)["api"]; s.Used != headgate.Units(0) && !s.Used.IsZero() {
			t.Errorf("%s: in use when it is empty are %s", notation, s.Used)
		}
	}
}
