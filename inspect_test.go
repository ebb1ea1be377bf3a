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

// listedNotations has limits of every law and every anchor.
var listedNotations = []string{
	"token-bucket 5/1s", "token-bucket 100/s burst 7", "leaky-bucket 1.5/s capacity 3", "gcra 10/s burst 5",
	"interval 100/10s burst 300", "fixed-window 5/1s", "fixed-window 5/1s from-first",
	"fixed-window 5/day Europe/Berlin", "fixed-window 9/month", "fixed-window 3/hour", "sliding-window 100/1m",
	"sliding-log 5/1s", "sliding-log 5/2s history 1d", "concurrency 4 ttl 3s",
}

// TestListEqualsInspect compares List with Inspect of each key, at random times after random charges. If List does not
// get the limits, it must state at least the usage.
func TestListEqualsInspect(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	compared, rounds := 0, tier.Pick(30, 200, 2000)
	for range rounds {
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
		statuses := listByLimit(t, l, limits...)
		statusesWithoutLimits := listByLimit(t, l)
		for i, limit := range limits {
			want, err := l.Inspect(t.Context(), limit, "k")
			if err != nil {
				t.Fatal(err)
			}
			if !want.Exists {
				continue
			}
			compared++
			got := statuses[limit.Name()]
			if got.Used != want.Used || got.Capacity != want.Capacity || got.Remaining != want.Remaining ||
				!got.EmptyAt.Equal(want.EmptyAt) {
				t.Errorf("%s: listed %+v, inspected %+v", listedNotations[i], got, want)
			}
			got = statusesWithoutLimits[limit.Name()]
			if got.Used.Float64() < want.Used.Float64() {
				t.Errorf("%s, unknown: listed %s, want at least %s", listedNotations[i], got.Used, want.Used)
			}
			if limit.Named() != (got.Remaining == -1) {
				t.Errorf("%s: %d remaining, want -1: %v, which is for limits with a name", listedNotations[i],
					got.Remaining, limit.Named())
			}
		}
	}
	if compared < rounds {
		t.Errorf("only %d cells existed in %d rounds, want one or more in each on average", compared, rounds)
	}
}

// chargeAtRandom makes one random charge of a limit: a detached lease, a settled reservation, or a take.
func chargeAtRandom(t *testing.T, l *headgate.Limiter, rng *rand.Rand, limit headgate.Limit) {
	t.Helper()
	ctx, charge := context.Background(), headgate.Charge{Limit: limit, Key: "k", Cost: headgate.Units(1 + rng.Int64N(3))}
	var err error
	switch choice := rng.IntN(4); {
	case limit.Concurrency():
		var lease *headgate.Lease
		if lease, err = l.Acquire(ctx, charge); err == nil {
			lease.Detach()
		}
	case choice == 0:
		var r *headgate.Reservation
		if r, err = l.Reserve(ctx, time.Minute, charge); err == nil && r.Decision.Allowed {
			_, err = r.Settle(ctx, headgate.Units(rng.Int64N(6)))
		}
	default:
		_, err = l.Take(ctx, charge)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listByLimit returns what List returns if it gets these limits, by the names of the limits.
func listByLimit(t *testing.T, l *headgate.Limiter, limits ...headgate.Limit) map[string]headgate.Status {
	t.Helper()
	cells, err := l.List(t.Context(), store.Query{}, limits...)
	if err != nil {
		t.Fatal(err)
	}
	statuses := map[string]headgate.Status{}
	for _, s := range cells {
		statuses[s.Limit] = s
	}
	return statuses
}

// TestListOfAnUnknownLimit checks that List, which does not get the limit, knows from the cell alone when it is empty,
// and half way to then states the usage to within 0.02.
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
			t.Errorf("%s: listed %s after the charge, want 2", notation, s.Used)
		}
		emptyAt := listByLimit(t, l)["api"].EmptyAt
		now += (emptyAt.UnixMicro() - now) / 2
		want, got := listByLimit(t, l, limit)["api"], listByLimit(t, l)["api"]
		if diff := got.Used.Float64() - want.Used.Float64(); diff < 0 || diff > 0.02 {
			t.Errorf("%s: listed %s half way to EmptyAt, want %s", notation, got.Used, want.Used)
		}
		now = emptyAt.UnixMicro()
		if s := listByLimit(t, l)["api"]; s.Used != headgate.Units(0) && !s.Used.IsZero() {
			t.Errorf("%s: listed %s at EmptyAt, want 0", notation, s.Used)
		}
	}
}
