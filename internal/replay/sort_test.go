package replay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
)

// amountsOf returns amounts for a request: costsOne for the first 100 keys, and other amounts for the other keys.
func amountsOf(at int64, key uint32) amounts {
	if key < 100 {
		return costsOne
	}
	return amounts{int64(key) + 1, at, -1}
}

// collect returns the requests of events in their order, with their amounts.
func collect(t *testing.T, s *events) (got []request) {
	t.Helper()
	err := s.each(t.Context(), func(r *request) error {
		got = append(got, *r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestSortIsStable checks that requests of the same time keep their order. The key of each request is its place in the
// input.
func TestSortIsStable(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range tier.Pick(60, 600, 6000) {
		var s events
		want := make([]request, rng.IntN(400))
		for i := range want {
			at := 1 + rng.Int64N(60)
			want[i] = request{at, uint32(i), amountsOf(at, uint32(i))}
			s.add(want[i])
		}
		s.sort()
		slices.SortStableFunc(want, func(a, b request) int { return int(a.at - b.at) })
		for range 2 { // events can be read again
			if got := collect(t, &s); !slices.Equal(got, want) {
				t.Fatalf("seed %d: got %v, want %v", seed, got, want)
			}
		}
	}
}

func TestSortByKey(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 1))
	var s events
	var want []request
	for i := range 500 {
		at, key := 1+rng.Int64N(30), uint32(rng.IntN(9))
		want = append(want, request{at, key, amounts{cost: int64(i)}})
		s.add(want[i])
	}
	s.sort()
	slices.SortStableFunc(want, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	if got := collect(t, s.byKey()); !slices.Equal(got, want) {
		t.Errorf("seed %d: got %v, want %v", seed, got, want)
	}
}

func TestEachEndsWithItsContext(t *testing.T) {
	t.Parallel()
	var s events
	s.add(request{at: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.each(ctx, func(*request) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	errStop := errors.New("boom")
	if err := s.each(t.Context(), func(*request) error { return errStop }); !errors.Is(err, errStop) {
		t.Errorf("got %v", err)
	}
}
