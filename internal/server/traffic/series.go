package traffic

import (
	"sync"
	"sync/atomic"
)

// ring is how many seconds a series has room for: those that are reported, the present one, and one more, so that a
// second is not taken away while it is read.
const ring = Seconds + 2

// second counts decisions of one second.
type second struct {
	at     atomic.Uint32 // seconds since the epoch
	counts [Outcomes]atomic.Uint32
}

// series are the decisions of each second.
type series struct {
	seconds [ring]second
	mu      sync.Mutex // of those who begin a second
}

// add counts a decision.
func (s *series) add(now int64, o Outcome) {
	at := uint32(now / 1e9)
	one := &s.seconds[at%ring]
	if one.at.Load() != at {
		s.begin(one, at)
	}
	one.counts[o].Add(1)
}

// begin makes room for another second.
func (s *series) begin(one *second, at uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if one.at.Load() == at {
		return
	}
	for i := range one.counts {
		one.counts[i].Store(0)
	}
	one.at.Store(at)
}

// last returns the counts of each of the n seconds before now, the oldest first, and whether there are any.
func (s *series) last(now int64, n int) (counts [Outcomes][]uint32, some bool) {
	for o := range counts {
		counts[o] = make([]uint32, n)
	}
	first := uint32(now/1e9) - uint32(n)
	for i := range n {
		at := first + uint32(i)
		one := &s.seconds[at%ring]
		if one.at.Load() != at {
			continue
		}
		for o := range counts {
			c := one.counts[o].Load()
			counts[o][i] = c
			some = some || c > 0
		}
	}
	return counts, some
}
