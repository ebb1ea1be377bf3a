package headgate_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestUsageEqualsInspectAndCheck compares Usage with Inspect and Check for each limit, at random times after random
// charges, and checks that it charges nothing.
func TestUsageEqualsInspectAndCheck(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	for range tier.Pick(30, 200, 2000) {
		now := time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC).UnixMicro()
		l := headgate.New(memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }}), nil)
		var limits []headgate.Limit
		for _, notation := range append(listedNotations, "0", "unlimited") {
			limits = append(limits, headgate.MustParse(notation))
		}
		for range 1 + rng.IntN(60) {
			now += rng.Int64N(1 << rng.IntN(34))
			chargeAtRandom(t, l, rng, limits[rng.IntN(len(limits))])
		}
		if rng.IntN(2) == 0 {
			if _, err := l.Block(t.Context(), limits[rng.IntN(len(limits))], "k", time.Hour, "a reason"); err != nil {
				t.Fatal(err)
			}
		}
		now += rng.Int64N(1 << rng.IntN(34))
		used, err := l.Usage(t.Context(), "k", limits...)
		if err != nil || len(used) != len(limits) {
			t.Fatalf("%d, %v", len(used), err)
		}
		for i, limit := range limits {
			got := used[i]
			want, err := l.Inspect(t.Context(), limit, "k")
			if err != nil {
				t.Fatal(err)
			}
			if got.Limit != want.Limit || got.Key != "k" || got.Exists != want.Exists || got.Used != want.Used ||
				got.Capacity != want.Capacity || got.Remaining != want.Remaining || got.Rule != want.Rule ||
				!got.EmptyAt.Equal(want.EmptyAt) || !got.BlockedUntil.Equal(want.BlockedUntil) ||
				got.Reason != want.Reason {
				t.Errorf("%s: used %+v\ninspected %+v", limit, got, want)
			}
			if limit.Concurrency() {
				if free := got.Remaining > 0; free != (got.RetryAfter == 0) {
					t.Errorf("%s: %+v", limit, got)
				}
				continue
			}
			d, err := l.Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if got.RetryAfter != d.RetryAfter {
				t.Errorf("%s: retry after %s, of a check %s", limit, got.RetryAfter, d.RetryAfter)
			}
		}
	}
}

// switchingNames is a Names whose limit is replaced by another one at a time.
type switchingNames struct{ limit headgate.Limit }

func (b switchingNames) Find(context.Context, string, string) (headgate.Limit, error) {
	return b.limit, nil
}

func (b switchingNames) FindAll(_ context.Context, charges []headgate.Charge) error {
	for i := range charges {
		charges[i].Limit = b.limit
	}
	return nil
}

// TestUsageIsByTheLimitInForce checks Usage while this machine's clock guesses the wrong limit.
func TestUsageIsByTheLimitInForce(t *testing.T) {
	t.Parallel()
	now := newClock("2026-03-01T12:00:00Z")
	next := parseNamed(t, "api", "fixed-window 20/1h from-first").Because("plan pro")
	limit, err := parseNamed(t, "api", "fixed-window 5/1h from-first").Because("override").
		Until(time.UnixMicro(now.now).Add(time.Minute), next)
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(memory.New(&memory.Config{Clock: now.read}), &headgate.Config{
		Names: switchingNames{limit}, Clock: func() int64 { return newClock("2026-03-01T12:00:00Z").now },
	})
	api := headgate.MustNamed("api")
	allow(t, l, api, "k")
	for _, want := range []struct {
		capacity int64
		applied  string
	}{{5, "override"}, {20, "plan pro"}} {
		for _, limits := range [][]headgate.Limit{{api}, {api, headgate.MustParse("token-bucket 1/s"), api}} {
			list, err := l.Usage(t.Context(), "k", limits...)
			if err != nil || len(list) != len(limits) || list[0].Capacity != headgate.Units(want.capacity) ||
				list[0].Applied != want.applied || list[0].Used != headgate.Units(1) ||
				list[len(list)-1].Used != headgate.Units(1) {
				t.Fatalf("got %+v, %v; want %+v", list, err, want)
			}
		}
		now.advance(2 * time.Minute)
	}
}

func TestUsageOfInvalidAndManyLimits(t *testing.T) {
	t.Parallel()
	l, limit := newLimiter(newClock("2026-03-01T12:00:00Z")), headgate.MustParse("token-bucket 1/s burst 3")
	for _, tt := range []struct {
		key   string
		limit headgate.Limit
		want  error
	}{
		{"a\x00b", limit, headgate.ErrInvalid},
		{"k", headgate.Limit{}, headgate.ErrInvalid},
		{"k", headgate.MustNamed("nobody"), headgate.ErrUnknownLimit},
	} {
		if list, err := l.Usage(t.Context(), tt.key, limit, tt.limit); !errors.Is(err, tt.want) || list != nil {
			t.Errorf("%q of %s: %+v, %v", tt.key, tt.limit, list, err)
		}
	}
	if list, err := l.Usage(t.Context(), "k"); err != nil || len(list) != 0 {
		t.Errorf("of no limit: %+v, %v", list, err)
	}
	many := make([]headgate.Limit, 2500)
	for i := range many {
		many[i] = limit
	}
	allow(t, l, limit, "k")
	list, err := l.Usage(t.Context(), "k", many...)
	if err != nil || len(list) != len(many) || list[2499].Used != headgate.Units(1) {
		t.Errorf("of many: %d, %v", len(list), err)
	}
	cells, err := l.List(t.Context(), store.Query{})
	if err != nil || len(cells) != 1 {
		t.Errorf("something was written: %+v, %v", cells, err)
	}
	if _, err := headgate.New(nil, nil).Usage(t.Context(), "k", limit); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without a store: %v", err)
	}
}
