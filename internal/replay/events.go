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

// amounts are the costs of a request in millionths, charged at first and used in the end, and when it is settled.
type amounts struct {
	cost, used int64
	end        int64 // time of the settlement, in microseconds; 0: none, and used is 0
}

// costsOne are the amounts of a request that costs one and is not settled.
var costsOne = amounts{cost: million}

// events is a list of requests: 16 bytes each, and 24 more each as soon as the amounts of one are not costsOne.
type events struct {
	list  []event
	costs []amounts // by seq; nil: all are costsOne
}

func (ev *events) add(r request) {
	n := len(ev.list)
	if r.amounts != costsOne && ev.costs == nil {
		ev.costs = slices.Repeat([]amounts{costsOne}, n)
	}
	if ev.costs != nil {
		ev.costs = append(ev.costs, r.amounts)
	}
	ev.list = append(ev.list, event{r.at, r.key, uint32(n)})
}

// sort sorts events by time, and events of the same time by the order of reading.
func (ev *events) sort() {
	compare := func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq)) }
	if !slices.IsSortedFunc(ev.list, compare) {
		slices.SortFunc(ev.list, compare)
	}
}

// byKey returns the events sorted by key, then by time and by the order of reading.
func (ev *events) byKey() *events {
	list := slices.Clone(ev.list)
	slices.SortFunc(list, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	})
	return &events{list, ev.costs}
}

// each calls f for each request in order, until f fails or ctx is done.
func (ev *events) each(ctx context.Context, f func(r *request) error) error {
	for i, e := range ev.list {
		if i&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		r := request{e.at, e.key, costsOne}
		if ev.costs != nil {
			r.amounts = ev.costs[e.seq]
		}
		if err := f(&r); err != nil {
			return err
		}
	}
	return nil
}
