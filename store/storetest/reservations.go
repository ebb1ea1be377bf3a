package storetest

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// exact is a bucket in rationals: units of cost, and microseconds.
type exact struct {
	capacity, rate *big.Rat // rate: units per microsecond
	most           *big.Rat // can be returned while others wait: not what drains within the microsecond of a start
	level          *big.Rat
	at             int64
	returned       *big.Rat // ever
}

func rat(n int64) *big.Rat { return big.NewRat(n, 1) }

// drained returns what is left of a level after so many microseconds.
func (e *exact) drained(level *big.Rat, us int64) *big.Rat {
	x := new(big.Rat).Sub(level, new(big.Rat).Mul(e.rate, rat(us)))
	if x.Sign() < 0 {
		return new(big.Rat)
	}
	return x
}

func (e *exact) forward(now int64) {
	e.level, e.at = e.drained(e.level, now-e.at), now
}

// after is the first microsecond at which so much has drained.
func (e *exact) after(now int64, much *big.Rat) int64 {
	q := new(big.Rat).Quo(much, e.rate)
	n, rest := new(big.Int).QuoRem(q.Num(), q.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return now + n.Int64()
}

// part is a reservation's share in one limit.
type part struct {
	limit          int
	tenths         int64 // the cost
	cost, kept     *big.Rat
	made, returned *big.Rat // the level that it made, and what was returned by then
	op             law.Op
	out            law.Outcome
}

// reservation is one of a history.
type reservation struct {
	parts    []part
	at       int64 // when it was made
	start    int64
	settled  bool // or cancelled
	admitted bool
}

// reserve is what should become of a reservation.
func reserve(limits []*exact, r *reservation, wait int64) {
	own := make([]int64, len(r.parts))
	r.admitted, r.start = true, r.at
	for i := range r.parts {
		p := &r.parts[i]
		e := limits[p.limit]
		e.forward(r.at)
		used := new(big.Rat).Add(e.level, p.cost)
		most := new(big.Rat).Add(e.capacity, new(big.Rat).Mul(e.rate, rat(wait)))
		if p.cost.Cmp(e.capacity) > 0 || used.Cmp(most) > 0 {
			r.admitted = false
			continue
		}
		own[i] = r.at
		if over := new(big.Rat).Sub(used, e.capacity); over.Sign() > 0 {
			own[i] = e.after(r.at, over)
		}
		r.start = max(r.start, own[i])
	}
	for i := 0; r.admitted && i < len(r.parts); i++ {
		p := &r.parts[i]
		e := limits[p.limit]
		used := new(big.Rat).Add(e.level, p.cost)
		from := new(big.Rat).Add(new(big.Rat).Mul(e.rate, rat(r.start-r.at)), p.cost)
		if r.start > own[i] {
			e.returned = new(big.Rat).Add(e.returned, used)
		}
		if e.level = used; r.start > r.at && from.Cmp(used) > 0 {
			e.level = from
		}
		p.made, p.returned, p.kept = e.level, e.returned, p.cost
	}
}

// settle is by how much a cost should be corrected: less than 0 is charged.
func (e *exact) settle(p *part, madeAt, now int64, actual *big.Rat) *big.Rat {
	e.forward(now)
	unused := new(big.Rat).Sub(p.cost, actual)
	back := unused
	if unused.Sign() > 0 {
		left := e.drained(p.made, now-madeAt)
		since := new(big.Rat).Sub(e.returned, p.returned)
		if e.level.Cmp(e.capacity) > 0 {
			behind := new(big.Rat).Add(new(big.Rat).Sub(e.level, left), since)
			back = new(big.Rat).Sub(least(unused, e.most), least(nil, behind))
		} else {
			back = least(unused, new(big.Rat).Sub(left, since))
		}
		back = least(least(nil, back), e.level)
		e.returned = new(big.Rat).Add(e.returned, back)
	}
	e.level = new(big.Rat).Sub(e.level, back)
	return back
}

// least returns the smaller of two; of nil and another, that one, but at least 0.
func least(a, b *big.Rat) *big.Rat {
	switch {
	case a == nil && b.Sign() < 0:
		return new(big.Rat)
	case a == nil || a.Cmp(b) > 0:
		return b
	}
	return a
}

// reservations compares random histories of reservations on three limits at once
// with those in rationals: made, settled for less and for more by their ids,
// cancelled without. Each history has a key of its own; a step of many is one
// batch.
func reservations(t *testing.T, s store.Store, opt *Options) {
	const together, steps = 50, 16
	for first := 0; first < opt.Reservations && !t.Failed(); first += together {
		seed := tier.Seed()
		histories := make([]*history, min(together, opt.Reservations-first))
		for i := range histories {
			histories[i] = newHistory(fmt.Sprint(first+i), seed+uint64(i))
		}
		for range steps {
			var ops []law.Op
			for i, h := range histories {
				more := h.step()
				for k := range more {
					more[k].Group = uint32(i + 1)
				}
				ops = append(ops, more...)
			}
			outs := apply(t, s, ops...)
			for i := range histories {
				n := len(histories[i].asked)
				if err := histories[i].heard(outs[:n]); err != nil {
					t.Fatalf("seed %d: %v", seed+uint64(i), err)
				}
				outs = outs[n:]
			}
		}
		for i, h := range histories {
			if err := h.over(); err != nil {
				t.Fatalf("seed %d: %v", seed+uint64(i), err)
			}
		}
	}
}

// threeLimits are those of a history: 10 a second at most 5 at once, 3 a second
// at most 7 at once, and 100 in 7 s at most 20 at once.
var threeLimits = []law.Params{
	{Kind: law.Bucket, Unit: 100_000, Capacity: 500_000, Step: 1, Drain: 1},
	{Kind: law.Bucket, Unit: 1_000_000, Capacity: 7_000_000, Step: 1, Drain: 3},
	{Kind: law.Bucket, Unit: 70_000, Capacity: 1_400_000, Step: 1, Drain: 1},
}

type history struct {
	*rand.Rand
	key    string
	now    int64
	limits []*exact
	made   []*reservation
	asked  []law.Op
	expect func(outs []law.Outcome) error
}

func newHistory(key string, seed uint64) *history {
	h := &history{Rand: rand.New(rand.NewPCG(seed, 3)), key: key, now: T0}
	for _, p := range threeLimits {
		h.limits = append(h.limits, &exact{
			capacity: big.NewRat(p.Capacity, p.Unit), rate: big.NewRat(p.Drain, p.Unit*p.Step),
			most: big.NewRat(p.Capacity-(p.Drain-1), p.Unit), level: new(big.Rat), at: T0, returned: new(big.Rat),
		})
	}
	return h
}

// step returns what the history asks next.
func (h *history) step() []law.Op {
	h.now += h.Int64N(700_000)
	if n := len(h.made); n > 0 && h.IntN(2) == 0 {
		if r := h.made[h.IntN(n)]; !r.settled {
			r.settled = true
			h.settle(r)
			return h.asked
		}
	}
	h.reserve()
	return h.asked
}

func (h *history) reserve() {
	r := &reservation{at: h.now}
	wait := h.Int64N(10_000_000)
	h.asked = nil
	id := ""
	if h.IntN(2) == 0 {
		id = fmt.Sprint("reservation ", len(h.made), h.now)
	}
	for _, i := range h.Perm(3)[:1+h.IntN(3)] {
		p := threeLimits[i]
		tenths := 1 + h.Int64N(10*p.Capacity/p.Unit+1) // the most is more than ever fits
		op := law.Op{
			Verb: law.Take, Cell: law.Cell{Limit: fmt.Sprint("reserved ", i), Key: h.key}, Params: p,
			Cost: tenths * p.Unit / 10, Count: 1, Now: h.now, Deferred: true, Ceiling: p.Ceiling(wait), ID: id,
		}
		if id != "" {
			op.TTL = 3600 * sec
		}
		h.asked = append(h.asked, op)
		r.parts = append(r.parts, part{limit: i, tenths: tenths, cost: big.NewRat(tenths, 10), op: op})
	}
	reserve(h.limits, r, wait)
	h.expect = func(outs []law.Outcome) error {
		admitted := true
		for i := range outs {
			r.parts[i].out = outs[i]
			admitted = admitted && outs[i].Granted == 1
		}
		if admitted != r.admitted || admitted && outs[0].StartAt != r.start {
			return fmt.Errorf("%+v\nadmitted %v for %d, want %v for %d", h.asked, admitted, outs[0].StartAt,
				r.admitted, r.start)
		}
		if r.admitted {
			h.made = append(h.made, r)
		}
		return nil
	}
}

// settle settles a reservation: with its id, or by what its outcome said. Before
// its start nothing can have been used.
func (h *history) settle(r *reservation) {
	h.asked = nil
	want := make([]*big.Rat, len(r.parts))
	for i := range r.parts {
		p := &r.parts[i]
		actual := int64(0)
		if r.start <= h.now && h.IntN(2) == 0 {
			actual = h.Int64N(p.tenths * 3 / 2)
		}
		op := settled(p.op, 0, h.now)
		op.Cost = actual * p.op.Params.Unit / 10
		if p.op.ID == "" {
			if actual == p.tenths {
				actual, op.Cost = 0, 0 // to correct nothing cannot be asked
			}
			op = law.Back(&p.op, &p.out, p.op.Cost-op.Cost)
			op.Now = h.now
		}
		if actual < p.tenths {
			p.kept = big.NewRat(actual, 10)
		}
		want[i] = h.limits[p.limit].settle(p, r.at, h.now, big.NewRat(actual, 10))
		h.asked = append(h.asked, op)
	}
	h.expect = func(outs []law.Outcome) error {
		for i := range outs {
			unit := r.parts[i].op.Params.Unit
			if got := big.NewRat(outs[i].Granted, unit); outs[i].Err != nil || got.Cmp(want[i]) != 0 {
				return fmt.Errorf("%+v\n%+v\ncorrected by %v, want %v", h.asked[i], outs[i], got, want[i])
			}
			level := big.NewRat(outs[i].State.Level, unit)
			if e := h.limits[r.parts[i].limit]; outs[i].Granted != 0 && level.Cmp(e.level) != 0 {
				return fmt.Errorf("%+v\nthe level is %v, want %v", h.asked[i], level, e.level)
			}
		}
		return nil
	}
}

func (h *history) heard(outs []law.Outcome) error { return h.expect(outs) }

// over says which interval has more starts than the limit lets pass, or nil.
func (h *history) over() error {
	for i, e := range h.limits {
		for _, first := range h.made {
			for _, last := range h.made {
				if last.start < first.start {
					continue
				}
				sum, most := new(big.Rat), new(big.Rat).Mul(e.rate, rat(last.start-first.start))
				most.Add(most, e.capacity)
				for _, r := range h.made {
					for _, p := range r.parts {
						if p.limit == i && r.start >= first.start && r.start <= last.start {
							sum.Add(sum, p.kept)
						}
					}
				}
				if sum.Cmp(most) > 0 {
					return fmt.Errorf("limit %d: %v start in %d us, %v may", i, sum, last.start-first.start, most)
				}
			}
		}
	}
	return nil
}
