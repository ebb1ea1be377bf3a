package store

import "context"

// KeyCounter is a Store that knows how many keys its limits have.
type KeyCounter interface {
	// KeyCounts returns how many keys limits have: those with the most, and perhaps
	// all of them together. It reads what was counted before, and counts nothing that
	// takes long. Safe for concurrent use.
	KeyCounts(ctx context.Context) ([]KeyCount, error)
}

// KeyCount is how many keys a limit had at some time.
type KeyCount struct {
	Limit string // its name; empty: all limits of the store together
	Keys  int64  // cells, of keys that may count no more included
	Max   int64  // keys that the store keeps of it at most; 0: any number
	At    int64  // the store's time of the count, in microseconds
}
