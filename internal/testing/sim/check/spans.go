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
	sum num // the sum of n of all marks up to this mark
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

// marksBefore returns the number of marks before a time, and the sum of their amounts.
func marksBefore(marks []mark, t int64) (count int, sum num) {
	count, _ = slices.BinarySearchFunc(marks, t, func(m mark, t int64) int { return cmp.Compare(m.t, t) })
	if count > 0 {
		sum = marks[count-1].sum
	}
	return count, sum
}

// countBegunBy returns the number and the sum of the spans that begin by t.
func (s *spans) countBegunBy(t int64) (n int, sum num) { return marksBefore(s.begins, t+1) }

// countEndedBefore returns the number and the sum of the spans that end before t. The number also identifies the
// stretch between spans that precedes t.
func (s *spans) countEndedBefore(t int64) (n int, sum num) { return marksBefore(s.ends, t) }

// sumDuring returns the sum of the spans that touch an interval.
func (s *spans) sumDuring(from, to int64) num {
	_, begun := s.countBegunBy(to)
	_, ended := s.countEndedBefore(from)
	return begun.minus(ended)
}

// stretchOf returns the number of the stretch between spans in which an interval lies; ok is false if the interval
// touches a span.
func (s *spans) stretchOf(from, to int64) (stretch int, ok bool) {
	stretch, _ = s.countEndedBefore(from)
	begun, _ := s.countBegunBy(to)
	return stretch, stretch == begun
}
