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
	Period  Seconds `json:"seconds"`
	Median  Total   `json:"p50"`
	P90     Total   `json:"p90"`
	P95     Total   `json:"p95"`
	P99     Total   `json:"p99"`
	P999    Total   `json:"p999"`
	Highest Total   `json:"max"`
}

// peakPeriods are the lengths of which peaks are told.
var peakPeriods = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}

// stretch follows what a key asked for within the last stretch of a length.
type stretch struct {
	length int64
	queue  []hit // from head on: what lies within it; of the same time together
	head   int
	sum    int64
	keys   []int64 // the most of each key, by its number
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
	most := &s.keys[len(s.keys)-1]
	*most = max(*most, s.sum)
}

// begin begins the next key.
func (s *stretch) begin() {
	s.keys = append(s.keys, 0)
	s.queue, s.head, s.sum = s.queue[:0], 0, 0
}

// findPeaks finds the peaks of all keys, also within other lengths, and tells of those of peakPeriods.
func (s *scale) findPeaks(ctx context.Context, others []time.Duration) ([]Peaks, error) {
	for _, d := range slices.Concat(peakPeriods, others) {
		if !slices.ContainsFunc(s.peaks, func(p stretch) bool { return p.length == d.Microseconds() }) {
			s.peaks = append(s.peaks, stretch{length: d.Microseconds()})
		}
	}
	err := s.each(ctx, func(uint32) {
		for i := range s.peaks {
			s.peaks[i].begin()
		}
	}, func(r *request) {
		for i := range s.peaks {
			s.peaks[i].add(r.at, r.weight())
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
