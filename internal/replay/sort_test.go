package replay

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

func collect(t *testing.T, s *sorter) (got []event) {
	t.Helper()
	err := s.each(t.Context(), func(at int64, key uint32) error {
		got = append(got, event{at: at, key: key})
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
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		n := rnd.IntN(400)
		want := make([]event, n)
		for i := range want {
			want[i] = event{at: 1 + rnd.Int64N(60), key: uint32(i)}
		}
		for _, most := range []int{1, 2, 7, 100, 1000} {
			dir := t.TempDir()
			s := newSorter(most, dir)
			for _, e := range want {
				if err := s.add(e.at, e.key); err != nil {
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
			first, last, err := s.span(t.Context())
			if err != nil || n > 0 && (first != sorted[0].at || last != sorted[n-1].at) {
				t.Fatalf("seed %d: span %d to %d, %v", seed, first, last, err)
			}
			s.close()
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Fatalf("left behind: %v", left)
			}
		}
	}
}

func TestSortEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, most := range []int{10, 1000} {
		dir := t.TempDir()
		s := newSorter(most, dir)
		for i := range 100 {
			if err := s.add(int64(i+1), 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.finish(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.each(ctx, func(int64, uint32) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		boom := errors.New("boom")
		if err := s.each(t.Context(), func(int64, uint32) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		s.close()
	}
}

func TestSortWithoutRoom(t *testing.T) {
	t.Parallel()
	s := newSorter(1, "/does/not/exist")
	defer s.close()
	_ = s.add(1, 1)
	if err := s.add(2, 2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
