package check

import (
	"math"
	"slices"
	"sort"

	"github.com/headgate/headgate/internal/history"
)

// repeatedFor is how long a refusal is repeated without asking the store, at most.
// docs/operating.md: "most a second at a time".
const repeatedFor = 1_000_000

// source is something that a node may repeat a refusal from.
type source struct {
	from, to int64 // true times of its call and return
	over     int64 // true time from which it may not be repeated
	cost     num
}

// sources are those of one node for one version of a limit and one key, by their calls.
type sources struct {
	list    []source
	longest int64    // from a call to the end of repeating
	open    []source // those without an end, each with the least cost of all up to it
}

func (s *sources) add(x source) {
	if x.over < forever {
		s.list, s.longest = append(s.list, x), max(s.longest, x.over-x.from)
		return
	}
	if n := len(s.open); n > 0 {
		x.cost = atMost(x.cost, s.open[n-1].cost)
	}
	s.open = append(s.open, x)
}

type place struct {
	node string
	cell *cell
	rule *rule
}

// repeats checks the refusals that were given without the store.
func (m *model) repeats() {
	known := map[place]*sources{}
	for _, a := range m.order {
		if a.Verb == history.Check || !asks(a.Verb) || a.via() == history.ViaRepeat {
			continue
		}
		for _, e := range a.parts {
			if s, ok := e.source(); ok {
				at := place{a.front(), e.cell, e.rule}
				if known[at] == nil {
					known[at] = &sources{}
				}
				if s.over < forever {
					s.over += (s.over - e.to) / 1_000_000 * m.drift // the clock of the node may be slow
				}
				known[at].add(s)
			}
		}
	}
	for _, a := range m.order {
		if !asks(a.Verb) || a.outcome() != history.Refused || a.via() != history.ViaRepeat {
			continue
		}
		justified := slices.ContainsFunc(a.parts, func(e *entry) bool {
			return known[place{a.front(), e.cell, e.rule}].justify(e, e.cell.resetBy(a.front(), e.from))
		})
		if !justified && len(a.parts) > 0 {
			m.violation("repeat", []*ask{a}, "%s: %s repeated a refusal that it was not given, "+
				"for less than it was refused, or for too long", a.parts[0].cell.name(), a.front())
		}
	}
}

// resetBy returns the true time at which a process began its last reset of a cell that was
// done before t, or 0. The process itself does not repeat what it was told before.
func (c *cell) resetBy(front string, t int64) (from int64) {
	for _, a := range c.others {
		if a.Verb == history.Reset && a.outcome() == history.Done && a.front() == front && a.to <= t {
			from = max(from, a.from)
		}
	}
	return from
}

// justify reports whether a refusal of the entry may be repeated from one of the sources that
// were not over at a true time.
func (s *sources) justify(e *entry, after int64) bool {
	if s == nil {
		return false
	}
	begun := func(list []source) int {
		return sort.Search(len(list), func(i int) bool { return list[i].from > e.to })
	}
	if i := begun(s.open); i > 0 && !e.cost.less(s.open[i-1].cost) {
		return true
	}
	for i := begun(s.list) - 1; i >= 0 && s.list[i].from+s.longest >= e.from; i-- {
		if x := s.list[i]; !e.cost.less(x.cost) && e.from <= x.over && x.to >= after {
			return true
		}
	}
	return false
}

// source returns for how long a refusal of the same cost can be repeated after an answer.
func (e *entry) source() (s source, ok bool) {
	s = source{e.from, e.to, forever, e.cost}
	if e.Wait > 0 && e.outcome() != history.Unknown { // it asks at any time, until it returns
		s.over = e.to + repeatedFor*1000 + 1000
		return s, true
	}
	f, told := e.figures()
	wait := int64(repeatedFor)
	switch e.outcome() {
	case history.Unknown:
		return s, true // the answer may have come after the caller had left
	case history.Refused:
		if told && f.RetryAfter >= 0 {
			wait = min(wait, f.RetryAfter)
		}
	case history.Admitted:
		// docs/decisions/2026-11-21-wrappers.md: a grant that takes the last token says that the
		// next is refused, without asking.
		c := e.cell.family
		if told && f.Remaining >= 0 {
			room := c.one().times(f.Remaining)
			if !room.less(e.cost) {
				return s, false // there was room for another
			}
			if e.rule.shape == rated {
				// The next fits when the cost has drained, but for what is left.
				lack := e.cost.minus(room).big()
				lack.Quo(lack, e.rule.rate.big())
				if lack.IsInt64() && lack.Int64() < math.MaxInt64-e.rule.step-1 {
					wait = min(wait, lack.Int64()+e.rule.step+1)
				}
			}
		}
	default:
		return s, false
	}
	s.over = e.to + wait*1000 + 1000
	return s, true
}
