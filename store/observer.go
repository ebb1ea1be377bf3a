package store

import "time"

// Observer receives what happens beside the decisions, for metrics and logs: package
// coalesce reports batches, drivers repeated transactions, package front sweeps.
// Its methods are called by many goroutines at once, and hold up what they are called for
// until they return. Decisions go to headgate.Observer.
type Observer interface {
	// Batched is called when the store has answered a batch.
	Batched(Batch)
	// Retried is called when a transaction that was repeated is over.
	Retried(Retries)
	// Swept is called after each sweep of the background.
	Swept(Sweep)
}

// Batch is a batch that callers shared.
type Batch struct {
	Callers int // that share it
	Ops     int
	Took    time.Duration
	Err     error // of the whole batch
}

// Retries are the repetitions of one transaction.
type Retries struct {
	Times int   // above 0
	Err   error // of the last attempt; nil: it succeeded
}

// Sweep is a sweep.
type Sweep struct {
	Removed int  // rows
	Full    bool // it removed as many as it may: there may be more
	Took    time.Duration
	Err     error
}

// Observe reports to an observer, which may be nil, the repetitions of a transaction, if
// there were any.
func Observe(o Observer, repeated int, err error) {
	if o != nil && repeated > 0 {
		o.Retried(Retries{repeated, err})
	}
}
