package store

import "context"

// KeyCounter is a Store that bounds how many keys each limit has, and counts them.
// A limit that has as many as it may is full: its new keys share one cell, until
// nothing in that cell counts any more and there is room again.
type KeyCounter interface {
	// Fullness returns how full the limits are that have a bound, by name. Of a
	// store with many limits it may leave out those that are far from full. It reads
	// what was counted before and counts nothing, so it is cheap. Safe for
	// concurrent use.
	Fullness(ctx context.Context) ([]Room, error)
}

// Room is how full a limit is.
type Room struct {
	Limit     string // its name; empty: all limits of the store together
	Keys      int64  // with a cell of their own, at CountedAt
	CountedAt int64  // the store's time of the count, microseconds; 0: they are always counted
	Max       int64  // keys that it may have; 0: any number

	Sharing    bool  // new keys share a cell now
	Generation int64 // of the last period of sharing, the present one if Sharing; 0: there was none
	Since      int64 // when Sharing began, the store's time in microseconds; 0 if not Sharing
	// ops that shared cells have answered in this process; callers whose questions were merged count once
	Shared int64
}

// Full reports whether new keys of the limit find no room, or share a cell still.
func (r *Room) Full() bool { return r.Sharing || r.Max > 0 && r.Keys >= r.Max }

// Fill returns the part of the limit's keys that is taken, from 0 to 1, and 1 if it
// is Full.
func (r *Room) Fill() float64 {
	switch {
	case r.Full():
		return 1
	case r.Max <= 0:
		return 0
	}
	return float64(r.Keys) / float64(r.Max)
}
