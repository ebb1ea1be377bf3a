package replay

import (
	"cmp"
	"context"
	"slices"
)

// event is one request: when, which key, and its place among those that were read.
type event struct {
	at       int64
	key, seq uint32
}

// request is an event with what it costs.
type request struct {
	at  int64
	key uint32
	amounts
}

// amounts are what a request costs, in millionths: at first and, of what is settled, in the end.
type amounts struct {
	cost, used int64
	end        int64 // when it is settled, in microseconds; 0: never
}

// plain are the amounts of a request that costs one.
var plain = amounts{cost: million}

// events are requests in an order: 16 bytes each, and 24 more from the first one on that does not cost one.
type events struct {
	list  []event
	costs []amounts // by seq; nil: all are plain
}

func (s *events) add(r request) {
	n := len(s.list)
	if r.amounts != plain && s.costs == nil {
		s.costs = slices.Repeat([]amounts{plain}, n)
	}
	if s.costs != nil {
		s.costs = append(s.costs, r.amounts)
	}
	s.list = append(s.list, event{r.at, r.key, uint32(n)})
}

// sort brings events into the order of their times, and those of one time into that in which they were read.
func (s *events) sort() {
	compare := func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(s.list, compare) {
		slices.SortFunc(s.list, compare)
	}
}

// byKey returns events that are sorted, key after key.
func (s *events) byKey() *events {
	list := slices.Clone(s.list)
	slices.SortFunc(list, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	return &events{list, s.costs}
}

// each calls f for all requests in order.
func (s *events) each(ctx context.Context, f func(r *request) error) error {
	for i, e := range s.list {
		if i&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r := request{e.at, e.key, plain}
		if s.costs != nil {
			r.amounts = s.costs[e.seq]
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return nil
}
