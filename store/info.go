package store

import "time"

// Info is what those in front of a store adapt themselves to. The zero Info says nothing of a store.
type Info struct {
	// Local says that the store answers out of the memory of this process: it never waits, so its callers
	// need no deadline and no wrappers.
	Local bool
	// Batches is with how many batches under way at once the store works best; 0: it does not matter.
	Batches int
	// Deadline is how long a request that takes or checks may wait for the store, where its limits do not say,
	// before something in front of it answers in its place; 0: any time.
	Deadline time.Duration
	// Partial says that one Sweep looks at a part of the rows, so that one that removes little, or nothing, does not
	// say that nothing is left.
	Partial bool
	// Passes is how many times the calls of a Partial Sweep through this Store have gone through all rows. A row on
	// which others depend may need a second pass.
	Passes int64
	// Retries is how many attempts the store has repeated since it was opened, because they conflicted with
	// others, or because a server could not decide for the moment.
	Retries int64
}

// Informer is a Store that knows of itself what is in Info. Safe for concurrent use.
type Informer interface {
	// Info returns what holds now. It is cheap.
	Info() Info
}

// InfoOf returns the Info of the first Informer of a store and those behind it, or the zero Info.
func InfoOf(s Store) Info {
	if i, ok := As[Informer](s); ok {
		return i.Info()
	}
	return Info{}
}
