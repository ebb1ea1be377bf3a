// Package headgate limits rates exactly, on the database that you already run.
//
// A [Limit] is an algorithm with its parameters; a key says who the limit applies to; a [Charge] is a limit, a key and
// a [Cost]. A [Limiter] returns a [Decision], which a store makes:
//
//	s := front.New(pg, nil) // pg is a store, for example from postgres.Open
//	defer s.Close()
//	limiter := headgate.New(s, nil)
//	login := headgate.MustParseNamed("login", "sliding-log 5/1m block 15m")
//	d, err := limiter.Allow(ctx, login, "alice")
//	if err == nil && d.Allowed { ... }
//
// Verbs: Allow and Take consume, Check decides without consuming, FillUp takes as much as fits, Debit charges whatever
// the level, and Refund gives back a part of the usage. Wait sleeps until the charges may start; Reserve returns that
// start at once, and Settle corrects the cost later. Acquire and WithLease hold charges of a concurrency limit until
// they are released. Once makes a request that is charged once, however often it is sent. Block refuses a key for a
// while, Reset forgets its usage, and Inspect, Usage and List read it.
//
// A refusal is a Decision, not an error, and charges nothing; only calls that return no Decision report it as a
// [DeniedError]. Several charges of one request are admitted all or none.
//
// Package store/front wraps a store to make it fast for many callers, and removes its dead keys. A driver without it
// makes the same decisions, but the program has to call its Sweep.
//
// The promise: over any closed interval of the store's own decision times, or of the starts of reservations, on any
// key, from any number of processes, no more passes than [Limit.Bound] states.
//
// This package imports only the standard library and packages of this module. A program compiles only the drivers below
// store/ that it imports.
package headgate
