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

// evaluator counts the requests that limits would refuse, for many limits in one pass over the requests, sorted by key.
// It calls the law directly instead of a limiter, since it decides a hundred times as often.
type evaluator struct {
	reqs          *Requests
	byKey         *events
	totals        []int64 // cost of all requests of each key, in millionths; saturated
	peaks         []keyPeaks
	plannedPasses int   // estimated passes over the requests, for the progress
	requestsDone  int64 // requests evaluated so far, in all passes
}

// candidate is a limit that is evaluated.
type candidate struct {
	family     *family
	limit      headgate.Limit
	params     law.Params
	denied     int64 // requests that the limit refuses
	deniedKeys int64 // keys that are refused at least once

	// For the key that is being evaluated.
	op        law.Op
	level, at int64     // with a plain law: the level, and its time
	state     law.State // with other laws
	refused   bool      // whether the key was refused at least once
}

func newEvaluator(reqs *Requests) *evaluator {
	return &evaluator{reqs: reqs, byKey: reqs.events.byKey(), totals: make([]int64, len(reqs.keys))}
}

// eachKey calls f for each key with all of its requests. The list is valid until f returns.
func (e *evaluator) eachKey(ctx context.Context, f func(key uint32, list []request)) error {
	var list []request
	lastReported := e.requestsDone
	endKey := func() {
		f(list[0].key, list)
		if e.requestsDone += int64(len(list)); e.requestsDone-lastReported > 1<<16 {
			lastReported = e.requestsDone
			e.reqs.cfg.Progress(Evaluating, e.requestsDone, e.reqs.report.Requests*int64(e.plannedPasses))
		}
		list = list[:0]
	}
	err := e.byKey.each(ctx, func(r *request) error {
		if len(list) > 0 && list[0].key != r.key {
			endKey()
		}
		list = append(list, *r)
		return nil
	})
	if err == nil {
		endKey()
	}
	return err
}

// evaluate adds the requests and keys that each candidate refuses to its counts.
func (e *evaluator) evaluate(ctx context.Context, candidates []*candidate) error {
	return e.eachKey(ctx, func(key uint32, list []request) {
		for _, c := range candidates {
			if !c.mayRefuse(e, key) {
				continue
			}
			c.level, c.at, c.state, c.refused = 0, 0, law.State{}, false
			for i := range list {
				c.take(&list[i])
			}
		}
	})
}

// finalCost returns the cost of a request: the used cost, if the request is settled.
func (r *request) finalCost() int64 {
	if r.end > 0 {
		return r.used
	}
	return r.cost
}

// mayRefuse reports whether a limit might refuse a request of a key, by its total and peaks. If not, skip the key.
func (c *candidate) mayRefuse(e *evaluator, key uint32) bool {
	capacity := c.params.Capacity / c.params.Unit // in whole units, rounded down
	if e.totals[key]/million < capacity {
		return false
	}
	for i := range e.peaks {
		peak := &e.peaks[i]
		highest := peak.costs[key]/million + 1
		fits := peak.length >= c.params.Step
		switch c.family.kind {
		case tokenBucket:
			// If no stretch of a length has a higher cost than drains in it, the level never exceeds that cost.
			periods := float64(peak.length) / float64(c.family.period.Microseconds())
			fits = float64(highest) <= float64(c.family.rate)*periods
		case slidingWindow:
			highest *= 2 // it counts at most two windows
		}
		if fits && highest <= capacity {
			return false
		}
	}
	return true
}

// take decides a request, charges it if it fits, and counts it if not.
func (c *candidate) take(r *request) {
	total := r.finalCost()
	if total == 0 {
		return
	}
	cost := total / million * c.params.Unit
	if fraction := total % million; fraction != 0 {
		hi, lo := bits.Mul64(uint64(fraction), uint64(c.params.Unit))
		creditPart, remainder := bits.Div64(hi, lo, million)
		if cost += int64(creditPart); remainder > 0 { // a part of a credit is rounded up
			cost++
		}
	}
	var granted bool
	switch {
	case cost > c.params.Capacity:
	case c.params.Plain():
		var used, t int64
		if granted, used, t, _, _ = law.TakePlain(&c.params, c.level, c.at, cost, r.at); granted {
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
		c.deniedKeys++
	}
}

// Peaks are quantiles, over the keys, of the cost of each key's busiest stretch of a length: half of the keys have at
// most Median, and so on.
type Peaks struct {
	Period  Seconds `json:"seconds"`
	Median  Total   `json:"p50"`
	P90     Total   `json:"p90"`
	P95     Total   `json:"p95"`
	P99     Total   `json:"p99"`
	P999    Total   `json:"p999"`
	Highest Total   `json:"max"`
}

// peakPeriods are the lengths for which peaks are reported, in ascending order.
var peakPeriods = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// keyPeaks has the highest cost of each key within any stretch of a length.
type keyPeaks struct {
	length int64   // in microseconds
	costs  []int64 // by key number, in millionths
}

// peakCost returns the highest cost of a key's requests within any stretch of a length.
func peakCost(list []request, length int64) (peak int64) {
	first, sum := 0, int64(0)
	for i := range list {
		for list[first].at <= list[i].at-length {
			sum -= list[first].finalCost()
			first++
		}
		sum += list[i].finalCost()
		peak = max(peak, sum)
	}
	return peak
}

// findPeaks sets totals, and peaks for peakPeriods and other lengths. It returns the quantiles for peakPeriods.
func (e *evaluator) findPeaks(ctx context.Context, otherLengths []time.Duration) ([]Peaks, error) {
	for _, d := range slices.Concat(peakPeriods, otherLengths) {
		if !slices.ContainsFunc(e.peaks, func(p keyPeaks) bool { return p.length == d.Microseconds() }) {
			e.peaks = append(e.peaks, keyPeaks{d.Microseconds(), make([]int64, len(e.reqs.keys))})
		}
	}
	err := e.eachKey(ctx, func(key uint32, list []request) {
		for _, p := range e.peaks {
			p.costs[key] = peakCost(list, p.length)
		}
		for i := range list {
			if t := &e.totals[key]; *t < math.MaxInt64/2 {
				*t += list[i].finalCost()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	list := make([]Peaks, len(peakPeriods))
	for i := range list {
		costs := slices.Sorted(slices.Values(e.peaks[i].costs))
		quantile := func(share float64) (t Total) {
			t.add(costs[max(0, int(math.Ceil(share*float64(len(costs))))-1)])
			return t
		}
		list[i] = Peaks{
			Seconds{peakPeriods[i]},
			quantile(0.5), quantile(0.9), quantile(0.95), quantile(0.99), quantile(0.999), quantile(1),
		}
	}
	return list, nil
}
