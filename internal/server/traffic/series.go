package traffic

import (
	"sync"
	"sync/atomic"
)

// ringSize is how many seconds a series keeps: those that are reported, the current one, and one more, so that a
// second is not overwritten while it is read.
const ringSize = Seconds + 2

// second counts the decisions of one second, by outcome.
type second struct {
	at     atomic.Uint32 // seconds since the epoch
	counts [OutcomeCount]atomic.Uint32
}

// series counts the decisions of each second, in a ring.
type series struct {
	seconds [ringSize]second
	mu      sync.Mutex // held by startSecond
}

func (s *series) add(nanos int64, o Outcome) {
	at := uint32(nanos / 1e9)
	slot := &s.seconds[at%ringSize]
	if slot.at.Load() != at {
		s.startSecond(slot, at)
	}
	slot.counts[o].Add(1)
}

// startSecond resets a slot for another second, unless another goroutine has.
func (s *series) startSecond(slot *second, at uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slot.at.Load() == at {
		return
	}
	for i := range slot.counts {
		slot.counts[i].Store(0)
	}
	slot.at.Store(at)
}

// lastSeconds returns the counts of each of the n seconds before end, the oldest first, and whether any is above 0.
func (s *series) lastSeconds(endNanos int64, n int) (counts [OutcomeCount][]uint32, hasCounts bool) {
	for o := range counts {
		counts[o] = make([]uint32, n)
	}
	first := uint32(endNanos/1e9) - uint32(n)
	for i := range n {
		at := first + uint32(i)
		slot := &s.seconds[at%ringSize]
		if slot.at.Load() != at {
			continue
		}
		for o := range counts {
			c := slot.counts[o].Load()
			counts[o][i] = c
			hasCounts = hasCounts || c > 0
		}
	}
	return counts, hasCounts
}
