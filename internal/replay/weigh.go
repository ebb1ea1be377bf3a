package replay

import (
	"context"
	"math"
	"math/bits"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// scale weighs limits: it counts what each would refuse, for many of them in one pass over the requests, which are
// sorted by their keys. It asks the law itself, and not a limiter, since it asks a hundred times as often.
type scale struct {
	in     *Requests
	byKey  *events
	totals []int64   // what each key asked for, in millionths; saturated
	peaks  []stretch // the most that each key asked for within a length
	passes int
	done   int64
}

// candidate is a limit that is weighed.
type candidate struct {
	family *family
	limit  headgate.Limit
	p      law.Params
	denied int64
	keys   int64 // that are refused at least once

	op        law.Op
	level, at int64
	state     law.State
	refused   bool
}

// newScale sorts the requests by their keys.
func newScale(ctx context.Context, in *Requests) (*scale, error) {
	s := &scale{in: in, byKey: in.events.byKey(), totals: make([]int64, len(in.keys))}
	return s, in.events.each(ctx, func(r *request) error {
		if t := &s.totals[r.key]; *t < math.MaxInt64/2 {
			*t += r.weight()
		}
		return nil
	})
}

// each calls begin for each key, and then take for each of its requests.
func (s *scale) each(ctx context.Context, begin func(key uint32), take func(r *request)) error {
	last, n := int64(-1), int64(0)
	err := s.byKey.each(ctx, func(r *request) error {
		if int64(r.key) != last {
			last = int64(r.key)
			begin(r.key)
		}
		take(r)
		if n++; n&0xffff == 0 {
			s.in.cfg.Progress(Weighing, s.done+n, s.in.report.Requests*int64(s.passes))
		}
		return nil
	})
	s.done += n
	return err
}

// weigh counts what limits refuse.
func (s *scale) weigh(ctx context.Context, list []*candidate) error {
	active := make([]*candidate, 0, len(list))
	return s.each(ctx, func(key uint32) {
		active = active[:0]
		for _, c := range list {
			if c.mayRefuse(s, key) {
				c.level, c.at, c.state, c.refused = 0, 0, law.State{}, false
				active = append(active, c)
			}
		}
	}, func(r *request) {
		for _, c := range active {
			c.take(r)
		}
	})
}

// weight is what a request is weighed by: of a call, what it came to in the end.
func (r *request) weight() int64 {
	if r.end > 0 {
		return r.used
	}
	return r.cost
}

// mayRefuse reports whether a limit can refuse a key at all, by what the key asked for in all and within some
// lengths of time. What it says no to need not be looked at.
func (c *candidate) mayRefuse(s *scale, key uint32) bool {
	capacity := c.p.Capacity / c.p.Unit // in whole units, rounded down
	if s.totals[key]/million < capacity {
		return false
	}
	for i := range s.peaks {
		peak := &s.peaks[i]
		most := peak.keys[key]/million + 1
		fits := peak.length >= c.p.Step
		switch c.family.kind {
		case tokenBucket:
			// A key that asks for no more within a length than drains in it never holds more than that.
			periods := float64(peak.length) / float64(c.family.period.Microseconds())
			fits = float64(most) <= float64(c.family.rate)*periods
		case slidingWindow:
			most *= 2 // it counts at most two windows
		}
		if fits && most <= capacity {
			return false
		}
	}
	return true
}

// take decides a request.
func (c *candidate) take(r *request) {
	asked := r.weight()
	if asked == 0 {
		return
	}
	cost := asked / million * c.p.Unit
	if rest := asked % million; rest != 0 {
		hi, lo := bits.Mul64(uint64(rest), uint64(c.p.Unit))
		part, finer := bits.Div64(hi, lo, million)
		if cost += int64(part); finer > 0 { // a cost that is finer than the limit counts is rounded up
			cost++
		}
	}
	var granted bool
	switch {
	case cost > c.p.Capacity:
	case c.p.Plain():
		var used, t int64
		if granted, used, t, _, _ = law.TakePlain(&c.p, c.level, c.at, cost, r.at); granted {
			c.level, c.at = used, t
		}
	default:
		c.op.Cost = cost
		d := law.Decide(c.state, &c.op, r.at, 0, nil)
		if granted = d.Outcome.Granted > 0; granted {
			c.state = d.Outcome.State
		} else if d.Moved {
			c.state = d.Base
		}
	}
	if granted {
		return
	}
	c.denied++
	if !c.refused {
		c.refused = true
		c.keys++
	}
}
