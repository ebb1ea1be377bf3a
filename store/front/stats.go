package front

import (
	"time"

	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/store"
)

// Stats are counts since New, for metrics. Counts of a wrapper that is left out are 0.
type Stats struct {
	// Repeated is the number of refused charges that package deny repeated without calling the store.
	Repeated int64
	// Guard has the counts of package guard.
	Guard guard.Stats
	// Prefetched is the number of charges that were granted out of tokens that this process had taken ahead.
	Prefetched int64
	// Callers is the number of calls that went to the store, Batches the number of batches that they shared, and Ops
	// the number of ops in these batches. Callers divided by Batches is what coalescing saves. A call is one Apply: one
	// decision, or one batch that a caller made itself.
	Callers, Batches, Ops int64
	// Waiting is the number of calls that wait for a batch that has not left.
	Waiting int
	// Retries is the number of times that the store below repeated a transaction.
	Retries int64

	// Sweeps is the number of sweeps that have ended, by the sweeper or by calls of Sweep, unless they were canceled.
	Sweeps int64
	// Swept is the number of rows that the sweeps removed.
	Swept int64
	// SweepErrors is the number of sweeps that failed.
	SweepErrors int64
	// LastSweep is when the last sweep ended; zero if no sweep has ended.
	LastSweep time.Time
	// LastSweepError is the error of the last sweep, nil if it succeeded.
	LastSweepError error
}

// Stats returns the counts. It is safe for concurrent use. It reads them one after another, so a call under way may be
// in some of them only.
func (s *Store) Stats() Stats {
	if f := s.openedStack(); f != nil {
		st := f.Stats()
		st.Guard = s.guard.Stats()
		return st
	}
	s.sweeper.mu.Lock()
	st := s.sweeper.stats
	s.sweeper.mu.Unlock()
	if s.guard != nil {
		st.Guard = s.guard.Stats()
		_, notOpen := s.guard.Unwrap().(*pending.Store)
		st.Guard.Away = st.Guard.Away || notOpen
	}
	if s.deny != nil {
		st.Repeated = s.deny.Repeated()
	}
	if s.prefetch != nil {
		st.Prefetched = s.prefetch.HandedOut()
	}
	if s.coalesce != nil {
		c := s.coalesce.Stats()
		st.Callers, st.Batches, st.Ops, st.Waiting = c.Callers, c.Batches, c.Ops, c.Waiting
	}
	st.Retries = store.InfoOf(s).Retries
	return st
}
