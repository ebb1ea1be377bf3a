package traffic

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/law"
)

// Series are the decisions of one limit.
type Series struct {
	Limit  string             // its name, or one of those in perlimit
	Counts [Outcomes][]uint32 // of each second
}

// Series returns the decisions of each of the last whole seconds, at most [Seconds], by limits for which want returns
// true, in the order of their names. They end at the time that it returns. Limits without a decision are left out.
func (t *Traffic) Series(seconds int, want func(limit string) bool) (list []Series, end time.Time) {
	t.forget()
	end = t.clock().Truncate(time.Second)
	t.limits.Each(func(name string, l *limit) {
		if !want(name) {
			return
		}
		if counts, some := l.series.last(end.UnixNano(), min(seconds, Seconds)); some {
			list = append(list, Series{name, counts})
		}
	})
	slices.SortFunc(list, func(a, b Series) int { return strings.Compare(a.Limit, b.Limit) })
	return list, end
}

// Key has the figures of a key by a limit, of the last [Seconds].
type Key struct {
	law.Cell
	Used    float64 // the cost that was admitted
	Refused float64 // how often it was refused
	// Recent is that by which the list is ordered, in parts of [Part] seconds, the oldest first. The last is not over.
	Recent [Parts]float64
}

// ranked is a key and what it is ranked by.
type ranked struct {
	of     *limit
	cell   law.Cell
	total  float64
	weight float64
}

func (r ranked) compare(s ranked) int {
	return cmp.Or(cmp.Compare(s.total, r.total), cmp.Compare(s.weight, r.weight),
		strings.Compare(r.cell.Limit, s.cell.Limit), strings.Compare(r.cell.Key, s.cell.Key))
}

// Top returns the n keys that were admitted most cost, or were refused most often, of limits for which want returns
// true. The limits are given by their names or notations.
func (t *Traffic) Top(by Outcome, n int, want func(limit string) bool) []Key {
	part := int32(t.clock().Unix() / Part)
	var list []ranked
	t.limits.Each(func(_ string, l *limit) {
		list = append(list, l.top(by, part, n, want)...)
	})
	slices.SortFunc(list, ranked.compare)
	keys := make([]Key, min(n, len(list)))
	for i := range keys {
		keys[i] = list[i].of.key(list[i].cell, by, part)
	}
	return keys
}

// top returns the n first keys of one limit.
func (l *limit) top(by Outcome, part int32, n int, want func(limit string) bool) (list []ranked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.most[by]
	if s == nil {
		return nil
	}
	for _, e := range s.entries {
		if total := e.total(part); total > 0 && want(e.cell.Limit) {
			list = append(list, ranked{l, e.cell, total, e.weight})
		}
	}
	slices.SortFunc(list, ranked.compare)
	return list[:min(n, len(list))]
}

// key returns what is known of a key.
func (l *limit) key(c law.Cell, by Outcome, part int32) Key {
	k := Key{Cell: c}
	l.mu.Lock()
	defer l.mu.Unlock()
	for which, s := range l.most {
		if s == nil || s.index[c] == nil {
			continue
		}
		e := s.index[c]
		if Outcome(which) == Admitted {
			k.Used = e.total(part)
		} else {
			k.Refused = e.total(part)
		}
		if Outcome(which) == by {
			for p := range k.Recent {
				if at := part - Parts + 1 + int32(p); at <= e.part && at > e.part-Parts {
					k.Recent[p] = float64(e.recent[at%Parts])
				}
			}
		}
	}
	return k
}
