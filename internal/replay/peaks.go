package replay

import (
	"context"
	"math"
	"slices"
	"time"
)

// Peaks tells what the keys asked for in the busiest stretch of each, of a length: half of the keys at most
// Median, and so on.
type Peaks struct {
	Period                               time.Duration
	Median, P90, P95, P99, P999, Highest Total
}

// peakPeriods are the lengths of which peaks are told.
var peakPeriods = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// stretch follows what a key asked for within the last stretch of a length.
type stretch struct {
	length    int64
	queue     []hit // from head on: what lies within it; of the same time together
	head      int
	sum, most int64
	keys      []int64 // the most of each key, by its number
}

// hit is what a key asked for at a time.
type hit struct{ at, cost int64 }

// add adds a request.
func (s *stretch) add(at, cost int64) {
	for s.head < len(s.queue) && s.queue[s.head].at <= at-s.length {
		s.sum -= s.queue[s.head].cost
		s.head++
	}
	if s.head > 64 && s.head > len(s.queue)/2 {
		s.queue = append(s.queue[:0], s.queue[s.head:]...)
		s.head = 0
	}
	if n := len(s.queue); n > s.head && s.queue[n-1].at == at {
		s.queue[n-1].cost += cost
	} else {
		s.queue = append(s.queue, hit{at, cost})
	}
	s.sum += cost
	s.most = max(s.most, s.sum)
}

// end ends a key.
func (s *stretch) end() {
	s.keys = append(s.keys, s.most)
	s.queue, s.head, s.sum, s.most = s.queue[:0], 0, 0, 0
}

// findPeaks finds the peaks of all keys, also within other lengths, and tells of those of peakPeriods.
func (s *scale) findPeaks(ctx context.Context, others []time.Duration) ([]Peaks, error) {
	for _, d := range peakPeriods {
		s.peaks = append(s.peaks, stretch{length: d.Microseconds()})
	}
	for _, d := range others {
		if !slices.Contains(peakPeriods, d) {
			s.peaks = append(s.peaks, stretch{length: d.Microseconds()})
		}
	}
	stretches := s.peaks
	last, n := int64(-1), int64(0)
	err := s.byKey.each(ctx, func(r *request) error {
		if key := int64(r.key); key != last {
			for i := range stretches {
				if last >= 0 {
					stretches[i].end()
				}
			}
			last = key
		}
		for i := range stretches {
			stretches[i].add(r.at, r.weight())
		}
		if n++; n&0xffff == 0 {
			s.in.cfg.Progress(Weighing, s.done+n, s.in.report.Requests*int64(s.passes))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.done += n
	for i := range stretches {
		stretches[i].end()
	}
	list := make([]Peaks, len(peakPeriods))
	for i := range list {
		keys := slices.Sorted(slices.Values(stretches[i].keys))
		at := func(share float64) (t Total) { // the least that is enough for so many of the keys
			t.add(keys[max(0, int(math.Ceil(share*float64(len(keys))))-1)])
			return t
		}
		list[i] = Peaks{peakPeriods[i], at(0.5), at(0.9), at(0.95), at(0.99), at(0.999), at(1)}
	}
	return list, nil
}
