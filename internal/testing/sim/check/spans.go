package check

import (
	"cmp"
	"slices"
)

// spans are intervals of true time, each with an amount. Sort them before any look-up.
type spans struct{ begins, ends []mark }

type mark struct {
	t   int64
	n   num
	sum num // of n, of all marks up to this one
}

func (s *spans) add(from, to int64, n num) {
	s.begins, s.ends = append(s.begins, mark{t: from, n: n}), append(s.ends, mark{t: to, n: n})
}

func (s *spans) sort() {
	for _, marks := range [][]mark{s.begins, s.ends} {
		slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.t, b.t) })
		var sum num
		for i := range marks {
			sum = sum.plus(marks[i].n)
			marks[i].sum = sum
		}
	}
}

func (s *spans) clone() *spans { return &spans{slices.Clone(s.begins), slices.Clone(s.ends)} }

// before returns the number of marks before a time, and the sum of their amounts.
func before(marks []mark, t int64) (n int, sum num) {
	n, _ = slices.BinarySearchFunc(marks, t, func(m mark, t int64) int { return cmp.Compare(m.t, t) })
	if n > 0 {
		sum = marks[n-1].sum
	}
	return n, sum
}

// begunBy returns the number and the sum of the spans that begin by t.
func (s *spans) begunBy(t int64) (n int, sum num) { return before(s.begins, t+1) }

// endedBefore returns the number and the sum of the spans that end before t. The number is also that of the stretch
// between spans that began last.
func (s *spans) endedBefore(t int64) (n int, sum num) { return before(s.ends, t) }

// during returns the sum of the spans that touch an interval.
func (s *spans) during(from, to int64) num {
	_, begun := s.begunBy(to)
	_, over := s.endedBefore(from)
	return begun.minus(over)
}

// between returns the number of the stretch between spans in which an interval lies; ok is false if the interval
// touches a span.
func (s *spans) between(from, to int64) (stretch int, ok bool) {
	stretch, _ = s.endedBefore(from)
	begun, _ := s.begunBy(to)
	return stretch, stretch == begun
}
