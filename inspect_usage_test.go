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

// TestUsageEqualsInspectAndCheck compares Usage with Inspect and Check at random times.
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
		usage, err := l.Usage(t.Context(), "k", limits...)
		if err != nil || len(usage) != len(limits) {
			t.Fatalf("got %d statuses, %v; want %d", len(usage), err, len(limits))
		}
		for i, limit := range limits {
			got := usage[i]
			want, err := l.Inspect(t.Context(), limit, "k")
			if err != nil {
				t.Fatal(err)
			}
			if got.Limit != want.Limit || got.Key != "k" || got.Exists != want.Exists || got.Used != want.Used ||
				got.Capacity != want.Capacity || got.Remaining != want.Remaining || got.Rule != want.Rule ||
				!got.EmptyAt.Equal(want.EmptyAt) || !got.BlockedUntil.Equal(want.BlockedUntil) ||
				got.Reason != want.Reason {
				t.Errorf("%s: usage   %+v\ninspect %+v", limit, got, want)
			}
			if limit.Concurrency() {
				if hasRoom := got.Remaining > 0; hasRoom != (got.RetryAfter == 0) {
					t.Errorf("%s: got %+v, want RetryAfter 0: %v", limit, got, hasRoom)
				}
				continue
			}
			d, err := l.Check(t.Context(), headgate.Charge{Limit: limit, Key: "k"})
			if err != nil {
				t.Fatal(err)
			}
			if got.RetryAfter != d.RetryAfter {
				t.Errorf("%s: RetryAfter is %s, want %s as Check says", limit, got.RetryAfter, d.RetryAfter)
			}
		}
	}
}

// fixedNames is a Names that finds the same limit for every name and key, and puts it into every charge.
type fixedNames struct{ limit headgate.Limit }

func (n fixedNames) Find(context.Context, string, string) (headgate.Limit, error) {
	return n.limit, nil
}

func (n fixedNames) FindAll(_ context.Context, charges []headgate.Charge) error {
	for i := range charges {
		charges[i].Limit = n.limit
	}
	return nil
}

// TestUsageIsByTheLimitInForce checks that the store's time selects the limit, not the Limiter's clock.
func TestUsageIsByTheLimitInForce(t *testing.T) {
	t.Parallel()
	storeClock := newClock("2026-03-01T12:00:00Z")
	next := parseNamed(t, "api", "fixed-window 20/1h from-first").Because("plan pro")
	limit, err := parseNamed(t, "api", "fixed-window 5/1h from-first").Because("override").
		Until(time.UnixMicro(storeClock.now).Add(time.Minute), next)
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(memory.New(&memory.Config{Clock: storeClock.read}), &headgate.Config{
		Names: fixedNames{limit}, Clock: func() int64 { return newClock("2026-03-01T12:00:00Z").now },
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
		storeClock.advance(2 * time.Minute)
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
			t.Errorf("%q of %s: got %+v, %v; want %v", tt.key, tt.limit, list, err, tt.want)
		}
	}
	if list, err := l.Usage(t.Context(), "k"); err != nil || len(list) != 0 {
		t.Errorf("no limits: got %+v, %v; want an empty list", list, err)
	}
	limits := make([]headgate.Limit, 2500)
	for i := range limits {
		limits[i] = limit
	}
	allow(t, l, limit, "k")
	list, err := l.Usage(t.Context(), "k", limits...)
	if err != nil || len(list) != len(limits) || list[2499].Used != headgate.Units(1) {
		t.Errorf("%d limits: got %d statuses, %v; want 1 used of each", len(limits), len(list), err)
	}
	cells, err := l.List(t.Context(), store.Query{})
	if err != nil || len(cells) != 1 {
		t.Errorf("got the cells %+v, %v; want one, as Usage writes nothing", cells, err)
	}
	if _, err := headgate.New(nil, nil).Usage(t.Context(), "k", limit); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without a store: %v, want ErrInvalid", err)
	}
}
