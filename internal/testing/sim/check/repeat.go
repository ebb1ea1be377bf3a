package check

import (
	"math"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// repeatedFor is how long a refusal is repeated without calling the store, at most.
// docs/operating.md: "most a second at a time".
const repeatedFor = 1_000_000

// source is something that a node may repeat a refusal from.
type source struct {
	from, to int64 // true times of its call and return
	over     int64 // true time from which it may not be repeated
	need     num   // repeated to charges that need as much: cost and headroom
}

// place is where refusals are remembered. Definitions of a rated level that agree in their numbers are one to a store,
// whatever they are called.
type place struct {
	node        string
	cell        *cell
	rate, most  num // of a rated level, as the next two
	life, block int64
	other       history.Limit // of limits that are not rated, whatever their version
}

func placeOf(e *entry) place {
	p := place{node: e.front(), cell: e.cell}
	if r := e.rule; r.shape == rated {
		p.rate, p.most, p.life, p.block = r.rate, r.most, r.life, r.limit.Block
	} else {
		p.other = *r.limit
		p.other.Version, p.other.Key, p.other.Until, p.other.Felt = 0, "", 0, 0
	}
	if len(e.cell.family.terms) > 0 { // what has an end has no prefetch, nor what follows it
		p.life, p.other.Prefetch, p.other.PrefetchLife = 0, "", 0
	}
	return p
}

func (m *model) repeats() {
	known := map[place][]source{} // by their calls
	for _, a := range m.order {
		if a.Verb == history.Check || !asks(a.Verb) || a.via() == history.ViaRepeat {
			continue
		}
		for _, e := range a.parts {
			e.by(func(e *entry) bool {
				for _, s := range []*source{e.source(), e.putsOff()} {
					if s != nil && s.over < forever {
						s.over += (s.over - e.to) / 1_000_000 * m.drift // the clock of the node may be slow
					}
					if s != nil {
						known[placeOf(e)] = append(known[placeOf(e)], *s)
					}
				}
				return false
			})
		}
	}
	for _, a := range m.order {
		if !asks(a.Verb) || a.outcome() != history.Refused || a.via() != history.ViaRepeat {
			continue
		}
		justified := slices.ContainsFunc(a.parts, func(e *entry) bool {
			return e.by(func(e *entry) bool { return e.repeats(known[placeOf(e)]) })
		})
		if !justified {
			m.violation("repeat", a.parts[0].cell, a.events,
				"%s repeated a refusal that it was not given, for less than it was refused, or for too long", a.front())
		}
	}
}

// repeats reports whether a refusal of the entry may be repeated from one of the sources: mostly from a late one.
func (e *entry) repeats(list []source) bool {
	reset, need := e.cell.resetBy(e.front(), e.from), e.need()
	for _, s := range slices.Backward(list) {
		if s.from <= e.to && e.from <= s.over && !need.less(s.need) && (s.over == forever || s.to >= reset) {
			return true
		}
	}
	return false
}

// putsOff returns for how long a charge that fits can put off refusals that a node was given before. They are
// of charges that need more than it did and than is left; if it waits, of all that need more than is left:
// it was admitted beyond the capacity, and may not say what is left.
func (e *entry) putsOff() *source {
	if e.outcome() != history.Admitted && (e.outcome() != history.Refused || len(e.Charges) == 1) {
		return nil
	}
	c := e.cell.family
	var need num
	if f, ok := e.figures(); ok && f.Remaining >= 0 {
		need = c.one().times(f.Remaining)
	}
	if e.Wait == 0 {
		need = atLeast(need, e.cost.plus(e.keep))
	}
	return &source{e.from, e.to, e.to + repeatedFor*1000 + 1000, need.plus(c.least())}
}

// resetBy returns the true time at which a process began its last reset of a cell that was
// done before t, or 0. The process itself does not repeat what was answered before.
func (c *cell) resetBy(front string, t int64) (from int64) {
	for _, a := range c.resets {
		if a.outcome() == history.Done && a.front() == front && a.to <= t {
			from = max(from, a.from)
		}
	}
	return from
}

// source returns for how long a refusal of the same cost can be repeated after an answer.
func (e *entry) source() *source {
	need := e.cost.plus(e.keep)
	f, known := e.figures()
	wait := int64(repeatedFor)
	switch out := e.outcome(); {
	case out == history.Unknown: // the answer may have come after the caller had left
		return &source{e.from, e.to, forever, need}
	case e.Wait > 0: // it asks at any time, until it returns
	case out == history.Refused:
		if known && f.RetryAfter >= 0 {
			wait = min(wait, f.RetryAfter)
		}
	case out == history.Admitted:
		// docs/project/decisions/wrappers.md: a grant that takes the last token says that the
		// next is refused, without asking.
		c := e.cell.family
		if known && f.Remaining >= 0 {
			room := c.one().times(f.Remaining)
			if !room.less(need) {
				return nil // there was room for another
			}
			if e.rule.shape == rated {
				// The next fits when the cost has drained, but for what is left.
				lack := need.minus(room).big()
				lack.Quo(lack, e.rule.rate.big())
				if lack.IsInt64() && lack.Int64() < math.MaxInt64-e.rule.step-1 {
					wait = min(wait, lack.Int64()+e.rule.step+1)
				}
			}
		}
	default:
		return nil
	}
	return &source{e.from, e.to, e.to + wait*1000 + 1000, need}
}
