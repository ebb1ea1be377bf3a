package traffic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// Series has the number of decisions of one limit per second.
type Series struct {
	Limit  string                 // name of the limit, or a shared name of perlimit
	Counts [OutcomeCount][]uint32 // counts of each second, by outcome
}

// Series returns the counts of each of the last whole seconds, at most [Seconds], and when the last second ends. The
// list has the limits for which include returns true, sorted by name. Limits without a decision are left out.
func (t *Traffic) Series(seconds int, include func(limit string) bool) (list []Series, end time.Time) {
	t.forget()
	end = t.clock().Truncate(time.Second)
	t.limits.Each(func(name string, l *limit) {
		if !include(name) {
			return
		}
		if counts, hasCounts := l.series.lastSeconds(end.UnixNano(), min(seconds, Seconds)); hasCounts {
			list = append(list, Series{name, counts})
		}
	})
	slices.SortFunc(list, func(a, b Series) int { return strings.Compare(a.Limit, b.Limit) })
	return list, end
}

// Key has the figures of a key of a limit for the last [Seconds].
type Key struct {
	law.Cell
	Used    float64 // the cost that was admitted
	Refused float64 // how often it was refused
	// Recent is the figure that orders the list, in parts of [PartSeconds], oldest first. The last part is incomplete.
	Recent [Parts]float64
}

// rankedKey is a key with its rank: total, then weight. compare sorts the highest rank first.
type rankedKey struct {
	limit  *limit
	cell   law.Cell
	total  float64
	weight float64
}

func (r rankedKey) compare(s rankedKey) int {
	return cmp.Or(cmp.Compare(s.total, r.total), cmp.Compare(s.weight, r.weight),
		strings.Compare(r.cell.Limit, s.cell.Limit), strings.Compare(r.cell.Key, s.cell.Key))
}

// Top returns the n keys with the most admitted cost, or the most refusals: by is Admitted or Refused. Only limits
// count for which include returns true; it gets their names or notations.
func (t *Traffic) Top(by Outcome, n int, include func(limit string) bool) []Key {
	part := int32(t.clock().Unix() / PartSeconds)
	var list []rankedKey
	t.limits.Each(func(_ string, l *limit) {
		list = append(list, l.top(by, part, n, include)...)
	})
	slices.SortFunc(list, rankedKey.compare)
	keys := make([]Key, min(n, len(list)))
	for i := range keys {
		keys[i] = list[i].limit.key(list[i].cell, by, part)
	}
	return keys
}

// top returns the n top keys of one limit; part is the current one.
func (l *limit) top(by Outcome, part int32, n int, include func(limit string) bool) (list []rankedKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sketches[by]
	if s == nil {
		return nil
	}
	for _, e := range s.entries {
		if total := e.total(part); total > 0 && include(e.cell.Limit) {
			list = append(list, rankedKey{l, e.cell, total, e.weight})
		}
	}
	slices.SortFunc(list, rankedKey.compare)
	return list[:min(n, len(list))]
}

// key returns the figures of a key; those that are not kept are 0.
func (l *limit) key(c law.Cell, by Outcome, part int32) Key {
	k := Key{Cell: c}
	l.mu.Lock()
	defer l.mu.Unlock()
	for outcome, s := range l.sketches {
		if s == nil || s.index[c] == nil {
			continue
		}
		e := s.index[c]
		if Outcome(outcome) == Admitted {
			k.Used = e.total(part)
		} else {
			k.Refused = e.total(part)
		}
		if Outcome(outcome) == by {
			for p := range k.Recent {
				if at := part - Parts + 1 + int32(p); at <= e.part && at > e.part-Parts {
					k.Recent[p] = float64(e.recent[at%Parts])
				}
			}
		}
	}
	return k
}
