package store

import "time"

// Info describes a store to its callers and wrappers, which adapt to it. The zero Info says nothing.
type Info struct {
	// Local says that the store answers out of the memory of this process: it never waits, so its callers need no
	// deadline and no wrappers.
	Local bool
	// Batches is the number of concurrent batches with which the store works best; 0: any number.
	Batches int
	// Deadline is how long a take or a check waits for the store, unless its limits say how long, before a wrapper
	// gives up waiting; 0: for any time.
	Deadline time.Duration
	// Partial says that each Sweep looks at a part of the rows: a Sweep that removes few rows, or none, does not
	// mean that no more can be removed.
	Partial bool
	// Passes is how many times the calls of a Partial Sweep through this Store have gone through all rows. A row on
	// which others depend may need a second pass.
	Passes int64
	// Retries is how many attempts the store has repeated since it was opened, because they conflicted with others, or
	// because a server could not decide for the moment.
	Retries int64
}

// Informer is a Store that describes itself. Safe for concurrent use.
type Informer interface {
	// Info returns the present values. It is cheap.
	Info() Info
}

// InfoOf returns the Info of the first Informer among s and the stores behind it, or the zero Info.
func InfoOf(s Store) Info {
	if i, ok := As[Informer](s); ok {
		return i.Info()
	}
	return Info{}
}
