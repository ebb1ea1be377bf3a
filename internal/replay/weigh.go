package replay

import (
	"context"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// scale weighs limits: it counts what each would refuse, for many of them in one pass over the requests, which are
// sorted by their keys. It asks the law itself, and not a limiter, since it asks a hundred times as often.
type scale struct {
	in     *Requests
	byKey  *events
	totals []int64 // what each key asked for, in millionths; saturated
	peaks  []stretch
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

func newScale(in *Requests) *scale {
	return &scale{in: in, byKey: in.events.byKey(), totals: make([]int64, len(in.keys))}
}

// each calls f for each key with all of its requests, which are good until f returns.
func (s *scale) each(ctx context.Context, f func(key uint32, list []request)) error {
	var list []request
	told := s.done
	end := func() {
		f(list[0].key, list)
		if s.done += int64(len(list)); s.done-told > 1<<16 {
			told = s.done
			s.in.cfg.Progress(Weighing, s.done, s.in.report.Requests*int64(s.passes))
		}
		list = list[:0]
	}
	err := s.byKey.each(ctx, func(r *request) error {
		if len(list) > 0 && list[0].key != r.key {
			end()
		}
		list = append(list, *r)
		return nil
	})
	if err == nil {
		end()
	}
	return err
}

// weigh counts what limits refuse.
func (s *scale) weigh(ctx context.Context, candidates []*candidate) error {
	return s.each(ctx, func(key uint32, list []request) {
		for _, c := range candidates {
			if !c.mayRefuse(s, key) {
				continue
			}
			c.level, c.at, c.state, c.refused = 0, 0, law.State{}, false
			for i := range list {
				c.take(&list[i])
			}
		}
	})
}

// weight returns what a request is weighed by: of a call, what it came to in the end.
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

// Peaks is what the keys asked for in the busiest stretch of each, of a length: half of the keys at most
// Median, and so on.
type Peaks struct {
	Period  Seconds `json:"seconds"`
	Median  Total   `json:"p50"`
	P90     Total   `json:"p90"`
	P95     Total   `json:"p95"`
	P99     Total   `json:"p99"`
	P999    Total   `json:"p999"`
	Highest Total   `json:"max"`
}

// peakPeriods are the lengths for which peaks are reported.
var peakPeriods = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// stretch is the most that each key asked for within a length.
type stretch struct {
	length int64
	keys   []int64 // by number
}

// most returns the most that the requests of a key ask for within a length.
func most(list []request, length int64) (most int64) {
	first, sum := 0, int64(0)
	for i := range list {
		for list[first].at <= list[i].at-length {
			sum -= list[first].weight()
			first++
		}
		sum += list[i].weight()
		most = max(most, sum)
	}
	return most
}

// findPeaks finds what keys ask for in all, and their peaks, also within other lengths. It reports those of
// peakPeriods.
func (s *scale) findPeaks(ctx context.Context, others []time.Duration) ([]Peaks, error) {
	for _, d := range slices.Concat(peakPeriods, others) {
		if !slices.ContainsFunc(s.peaks, func(p stretch) bool { return p.length == d.Microseconds() }) {
			s.peaks = append(s.peaks, stretch{d.Microseconds(), make([]int64, len(s.in.keys))})
		}
	}
	err := s.each(ctx, func(key uint32, list []request) {
		for _, p := range s.peaks {
			p.keys[key] = most(list, p.length)
		}
		for i := range list {
			if t := &s.totals[key]; *t < math.MaxInt64/2 {
				*t += list[i].weight()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	list := make([]Peaks, len(peakPeriods))
	for i := range list {
		keys := slices.Sorted(slices.Values(s.peaks[i].keys))
		at := func(share float64) (t Total) { // the least that is enough for this share of the keys
			t.add(keys[max(0, int(math.Ceil(share*float64(len(keys))))-1)])
			return t
		}
		list[i] = Peaks{Seconds{peakPeriods[i]}, at(0.5), at(0.9), at(0.95), at(0.99), at(0.999), at(1)}
	}
	return list, nil
}
