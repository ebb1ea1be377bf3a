package replay

import (
	"cmp"
	"context"
	"slices"
)

// event is one request: its time, the number of its key, and its place in the order of reading.
type event struct {
	at       int64
	key, seq uint32
}

// request is an event with its amounts.
type request struct {
	at  int64
	key uint32
	amounts
}

// amounts are the costs of a request in millionths: charged at first and, if it is settled, used in the end.
type amounts struct {
	cost, used int64
	end        int64 // when it is settled, in microseconds; 0: never
}

// costsOne are the amounts of a request that costs one and is not settled.
var costsOne = amounts{cost: million}

// events is a list of requests: 16 bytes each, and 24 more each as soon as one of them does not cost one.
type events struct {
	list  []event
	costs []amounts // by seq; nil: all are costsOne
}

func (s *events) add(r request) {
	n := len(s.list)
	if r.amounts != costsOne && s.costs == nil {
		s.costs = slices.Repeat([]amounts{costsOne}, n)
	}
	if s.costs != nil {
		s.costs = append(s.costs, r.amounts)
	}
	s.list = append(s.list, event{r.at, r.key, uint32(n)})
}

// sort sorts events by time, and events of the same time by the order of reading.
func (s *events) sort() {
	compare := func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(s.list, compare) {
		slices.SortFunc(s.list, compare)
	}
}

// byKey returns the events sorted by key, then by time and by the order of reading.
func (s *events) byKey() *events {
	list := slices.Clone(s.list)
	slices.SortFunc(list, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	return &events{list, s.costs}
}

// each calls f for each request in order, until f fails or ctx is done.
func (s *events) each(ctx context.Context, f func(r *request) error) error {
	for i, e := range s.list {
		if i&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r := request{e.at, e.key, costsOne}
		if s.costs != nil {
			r.amounts = s.costs[e.seq]
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return nil
}
