package store

import "time"

// Observer receives events for metrics and logs: batches from package coalesce, repeated transactions from drivers,
// sweeps from package front. Decisions go to headgate.Observer. Many goroutines call its methods at once, and what a
// method reports is held up until the method returns.
type Observer interface {
	// Batched is called when a batch has returned from the store, also with an error.
	Batched(Batch)
	// Retried is called after the last attempt of a transaction that was repeated.
	Retried(Retries)
	// Swept is called after each background sweep.
	Swept(Sweep)
}

// Batch is a batch of one caller, or one that several callers shared.
type Batch struct {
	Callers int // how many share the batch
	Ops     int
	Took    time.Duration
	Err     error // the error of the whole batch
}

// Retries are the repetitions of one transaction.
type Retries struct {
	Times int   // above 0
	Err   error // the error of the last attempt; nil: it succeeded
}

// Sweep is the result of a background sweep.
type Sweep struct {
	Removed int  // rows
	Full    bool // the sweep removed as many rows as it may: there may be more
	Took    time.Duration
	Err     error
}

// Observe reports the repetitions of a transaction to o, unless o is nil or there were none.
func Observe(o Observer, retries int, err error) {
	if o != nil && retries > 0 {
		o.Retried(Retries{retries, err})
	}
}
