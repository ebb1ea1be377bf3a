package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// exact is a bucket in credits and microseconds, of which each drains a whole number of credits: nothing is rounded.
type exact struct {
	law.Params
	level    int64
	at       int64
	returned int64 // ever
}

// drained returns what is left of a level after some microseconds.
func (e *exact) drained(level, us int64) int64 { return max(0, level-e.Drain*us) }

func (e *exact) forward(now int64) { e.level, e.at = e.drained(e.level, now-e.at), now }

// part is a reservation's share in one limit.
type part struct {
	limit          int
	tenths         int64 // the cost in tenths of a unit,
	cost, kept     int64 // and in credits
	made, returned int64 // the level that it made, and what was returned by then
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
		used := e.level + p.cost
		if p.cost > e.Capacity || used > e.Capacity+e.Drain*wait {
			r.admitted = false
			continue
		}
		own[i] = r.at // or the first microsecond at which enough has drained
		if over := used - e.Capacity; over > 0 {
			own[i] += (over + e.Drain - 1) / e.Drain
		}
		r.start = max(r.start, own[i])
	}
	for i := 0; r.admitted && i < len(r.parts); i++ {
		p := &r.parts[i]
		e := limits[p.limit]
		e.level += p.cost
		if r.start > own[i] {
			e.returned += e.level
		}
		if r.start > r.at {
			e.level = max(e.level, e.Drain*(r.start-r.at)+p.cost)
		}
		p.made, p.returned, p.kept = e.level, e.returned, p.cost
	}
}

// settle is by how much a cost should be corrected: less than 0 is charged.
func (e *exact) settle(p *part, madeAt, now, actual int64) int64 {
	e.forward(now)
	back := p.cost - actual
	if back > 0 {
		left := e.drained(p.made, now-madeAt)
		since := e.returned - p.returned
		if e.level > e.Capacity { // others wait: what drains within the microsecond of a start is not returned
			back = min(back, e.Capacity-(e.Drain-1)) - max(0, e.level-left+since)
		} else {
			back = min(back, left-since)
		}
		back = min(max(0, back), e.level)
		e.returned += back
	}
	e.level -= back
	return back
}

// reservations compares random histories of reservations on three limits at once
// with exact arithmetic: made, settled for less and for more by their ids,
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
				if err := histories[i].expect(outs[:n]); err != nil {
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
		h.limits = append(h.limits, &exact{Params: p, at: T0})
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
		op := take(fmt.Sprint("reserved ", i), h.key, p, 0, h.now)
		op.Cost, op.Deferred, op.Ceiling = tenths*p.Unit/10, true, p.Ceiling(wait)
		if id != "" {
			op.ID, op.TTL = id, hour
		}
		h.asked = append(h.asked, op)
		r.parts = append(r.parts, part{limit: i, tenths: tenths, cost: op.Cost, op: op})
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
	want := make([]int64, len(r.parts))
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
		credits := actual * p.op.Params.Unit / 10
		p.kept = min(p.kept, credits)
		want[i] = h.limits[p.limit].settle(p, r.at, h.now, credits)
		h.asked = append(h.asked, op)
	}
	h.expect = func(outs []law.Outcome) error {
		for i, out := range outs {
			if out.Err != nil || out.Granted != want[i] {
				return fmt.Errorf("%+v\n%+v\ncorrected by %d credits, want %d", h.asked[i], out, out.Granted, want[i])
			}
			if e := h.limits[r.parts[i].limit]; out.Granted != 0 && out.State.Level != e.level {
				return fmt.Errorf("%+v\nthe level is %d credits, want %d", h.asked[i], out.State.Level, e.level)
			}
		}
		return nil
	}
}

// over says which interval has more starts than the limit lets pass, or nil.
func (h *history) over() error {
	for i, e := range h.limits {
		for _, first := range h.made {
			for _, last := range h.made {
				if last.start < first.start {
					continue
				}
				sum, most := int64(0), e.Drain*(last.start-first.start)+e.Capacity
				for _, r := range h.made {
					for _, p := range r.parts {
						if p.limit == i && r.start >= first.start && r.start <= last.start {
							sum += p.kept
						}
					}
				}
				if sum > most {
					return fmt.Errorf("limit %d: %d credits start in %d us, %d may", i, sum, last.start-first.start, most)
				}
			}
		}
	}
	return nil
}
