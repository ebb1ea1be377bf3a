package replay

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
)

// priced are the amounts of some of the events; the others cost one.
func priced(e event) amounts {
	if e.key < 100 {
		return plain
	}
	return amounts{int64(e.key) + 1, e.at, -1}
}

func collect(t *testing.T, s *sorter) (got []event) {
	t.Helper()
	err := s.each(t.Context(), func(r *request) error {
		if r.amounts != priced(event{at: r.at, key: r.key}) {
			t.Errorf("request %d has the amounts %+v", r.key, r.amounts)
		}
		got = append(got, event{at: r.at, key: r.key})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// The key of each event is its place in the input, so that equal times show
// whether their order was kept.
func TestSortIsStableWhereverItHappens(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range tier.Pick(12, 60, 600) {
		n := rnd.IntN(400)
		want := make([]event, n)
		for i := range want {
			want[i] = event{at: 1 + rnd.Int64N(60), key: uint32(i)}
		}
		for _, most := range []int{1, 2, 7, 100, 1000} {
			dir := t.TempDir()
			s := newSorter(most, dir)
			for _, e := range want {
				if err := s.add(request{e.at, e.key, priced(e)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.finish(); err != nil {
				t.Fatal(err)
			}
			sorted := slices.Clone(want)
			slices.SortStableFunc(sorted, func(a, b event) int { return int(a.at - b.at) })
			for range 2 { // it can be read again
				if got := collect(t, s); !slices.Equal(got, sorted) {
					t.Fatalf("seed %d, %d in memory: got %v, want %v", seed, most, got, sorted)
				}
			}
			if n > 0 && (s.first != sorted[0].at || s.last != sorted[n-1].at) {
				t.Fatalf("seed %d: span %d to %d", seed, s.first, s.last)
			}
			s.close()
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

func TestSortByKey(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rnd := rand.New(rand.NewPCG(seed, 1))
	var want []event
	for range 500 {
		want = append(want, event{at: 1 + rnd.Int64N(30), key: uint32(rnd.IntN(9))})
	}
	for _, most := range []int{7, 100, 1000} {
		s := newSorter(most, t.TempDir())
		s.byKey = true
		for _, e := range want {
			if err := s.add(request{e.at, e.key, priced(e)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}
		sorted := slices.Clone(want)
		slices.SortFunc(sorted, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
		})
		if got := collect(t, s); !slices.Equal(got, sorted) {
			t.Errorf("seed %d, %d in memory: got %v, want %v", seed, most, got, sorted)
		}
		s.close()
	}
}

func TestSortEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, most := range []int{10, 1000} {
		dir := t.TempDir()
		s := newSorter(most, dir)
		for i := range 100 {
			if err := s.add(request{at: int64(i + 1)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.each(ctx, func(*request) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		boom := errors.New("boom")
		if err := s.each(t.Context(), func(*request) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		s.close()
	}
}

func TestSortWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newSorter(1, "/does/not/exist")
	defer s.close()
	_ = s.add(request{at: 1, key: 1})
	if err := s.add(request{at: 2, key: 2}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
