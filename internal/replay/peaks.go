package replay

import (
	"context"
	"math"
	"slices"
	"time"
)

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
