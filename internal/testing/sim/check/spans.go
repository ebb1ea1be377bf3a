package check

import (
	"cmp"
	"slices"
)

// spans are stretches of true time within which something happened, each with an amount. They are asked
// once they are sorted.
type spans struct{ from, to []mark }

type mark struct {
	t   int64
	n   num
	sum num // of all marks up to this
}

func (s *spans) add(from, to int64, n num) {
	s.from, s.to = append(s.from, mark{t: from, n: n}), append(s.to, mark{t: to, n: n})
}

func (s *spans) sort() {
	for _, marks := range [][]mark{s.from, s.to} {
		slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.t, b.t) })
		var sum num
		for i := range marks {
			sum = sum.plus(marks[i].n)
			marks[i].sum = sum
		}
	}
}

func (s *spans) clone() *spans { return &spans{slices.Clone(s.from), slices.Clone(s.to)} }

// before returns the number of marks before a time, and the sum of their amounts.
func before(marks []mark, t int64) (n int, sum num) {
	n, _ = slices.BinarySearchFunc(marks, t, func(m mark, t int64) int { return cmp.Compare(m.t, t) })
	if n > 0 {
		sum = marks[n-1].sum
	}
	return n, sum
}

// begun returns the number and the sum of the spans that begin by t.
func (s *spans) begun(t int64) (n int, sum num) { return before(s.from, t+1) }

// over returns the number and the sum of the spans that end before t. The number is also that of the stretch between
// spans that began last.
func (s *spans) over(t int64) (n int, sum num) { return before(s.to, t) }

func (s *spans) during(from, to int64) num {
	_, begun := s.begun(to)
	_, over := s.over(from)
	return begun.minus(over)
}

// between returns the number of the stretch between spans in which an interval of true
// time lies; false if it touches one.
func (s *spans) between(from, to int64) (stretch int, ok bool) {
	stretch, _ = s.over(from)
	begun, _ := s.begun(to)
	return stretch, stretch == begun
}
