package check

import (
	"math"
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// maxRepeat is the longest time in which a refusal is repeated without the store, in microseconds.
// docs/operating.md: "at most a second at a time".
const maxRepeat = 1_000_000

// source is an answer after which a node may repeat a refusal.
type source struct {
	from, to int64 // true times of the call and the return
	until    int64 // the latest true time at which a call may begin that gets the repeated refusal
	need     num   // the refusal may be repeated to charges whose cost and headroom together are at least this
}

// sourceKey is the key by which a node caches sources. Versions of a bucket that agree in their numbers have the same
// key: to a store they are one limit.
type sourceKey struct {
	node           string
	cell           *cell
	rate, capacity num // these and the next two are for buckets only
	life, block    int64
	limit          history.Limit // for other limits, without the fields that differ from version to version
}

func sourceKeyOf(e *entry) sourceKey {
	p := sourceKey{node: e.front(), cell: e.cell}
	if r := e.rule; r.shape == bucketShape {
		p.rate, p.capacity, p.life, p.block = r.rate, r.capacity, r.life, r.limit.Block
	} else {
		p.limit = *r.limit
		p.limit.Version, p.limit.Key, p.limit.Until, p.limit.MaxApplyTime = 0, "", 0, 0
	}
	if len(e.cell.family.terms) > 0 { // an override with an end is not prefetched, nor the limit that follows it
		p.life, p.limit.Prefetch, p.limit.PrefetchLife = 0, "", 0
	}
	return p
}

// repeats checks that each repeated refusal has a source.
func (m *model) repeats() {
	sources := map[sourceKey][]source{} // in the order of their calls
	for _, a := range m.calls {
		if a.Verb == history.Check || !hasDecision(a.Verb) || a.via() == history.ViaRepeat {
			continue
		}
		for _, e := range a.entries {
			e.underSomeVersion(func(e *entry) bool {
				for _, s := range []*source{e.source(), e.prolongingSource()} {
					if s != nil && s.until < forever {
						s.until += (s.until - e.to) / 1_000_000 * m.drift // the clock of the node may be slow
					}
					if s != nil {
						sources[sourceKeyOf(e)] = append(sources[sourceKeyOf(e)], *s)
					}
				}
				return false
			})
		}
	}
	for _, a := range m.calls {
		if !hasDecision(a.Verb) || a.outcome() != history.Refused || a.via() != history.ViaRepeat {
			continue
		}
		justified := slices.ContainsFunc(a.entries, func(e *entry) bool {
			return e.underSomeVersion(func(e *entry) bool { return e.hasSource(sources[sourceKeyOf(e)]) })
		})
		if !justified {
			m.report("repeat", a.entries[0].cell, a.events,
				"%s repeated a refusal that it was not given, for less than it was refused, or for too long", a.front())
		}
	}
}

// hasSource reports whether one of the sources justifies a repeated refusal of the entry.
func (e *entry) hasSource(list []source) bool {
	reset, need := e.cell.lastReset(e.front(), e.from), e.need()
	for _, s := range slices.Backward(list) {
		if s.from <= e.to && e.from <= s.until && !need.less(s.need) && (s.until == forever || s.to >= reset) {
			return true
		}
	}
	return false
}

// prolongingSource returns a source for the refusals that a charge which fits can prolong, or nil: refusals of charges
// that need more than the entry needed, and more than remains. If the entry may wait for its start, more than remains
// is enough: it may be admitted beyond the capacity, and its answer may not say what remains.
func (e *entry) prolongingSource() *source {
	if e.outcome() != history.Admitted && (e.outcome() != history.Refused || len(e.Charges) == 1) {
		return nil
	}
	c := e.cell.family
	var need num
	if f, ok := e.figures(); ok && f.Remaining >= 0 {
		need = c.unitCost().times(f.Remaining)
	}
	if e.Wait == 0 {
		need = maxNum(need, e.cost.plus(e.headroom))
	}
	return &source{e.from, e.to, e.to + maxRepeat*1000 + 1000, need.plus(c.roundingStep())}
}

// lastReset returns the true time at which a process began its last reset of the cell that was done by t, or 0. The
// process does not repeat refusals from before that reset.
func (c *cell) lastReset(front string, t int64) (from int64) {
	for _, a := range c.resets {
		if a.outcome() == history.Done && a.front() == front && a.to <= t {
			from = max(from, a.from)
		}
	}
	return from
}

// source returns the source that the answer about an entry is, for charges that need as much as the entry; nil: none.
func (e *entry) source() *source {
	need := e.cost.plus(e.headroom)
	f, known := e.figures()
	wait := int64(maxRepeat)
	switch out := e.outcome(); {
	case out == history.Unknown: // the answer may have come after the caller had left
		return &source{e.from, e.to, forever, need}
	case e.Wait > 0: // the call may be decided at any time until it returns
	case out == history.Refused:
		if known && f.RetryAfter >= 0 {
			wait = min(wait, f.RetryAfter)
		}
	case out == history.Admitted:
		// docs/project/decisions/wrappers.md: after an admission that takes the last token, the node refuses the next
		// charge without calling the store.
		c := e.cell.family
		if known && f.Remaining >= 0 {
			room := c.unitCost().times(f.Remaining)
			if !room.less(need) {
				return nil // there was room for another
			}
			if e.rule.shape == bucketShape {
				// The next charge fits when its cost, less what remains, has drained.
				lack := need.minus(room).toBig()
				lack.Quo(lack, e.rule.rate.toBig())
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
