// Package headgate limits rates exactly, on the database that you already run.
//
// A [Limit] is an algorithm with its parameters; a key says who it is applied
// to; a [Charge] is a limit, a key and a [Cost]. A [Limiter] has a store make
// a [Decision]:
//
//	s := front.New(pg, nil) // pg is a store: of postgres.Open, for example
//	defer s.Close()
//	limiter := headgate.New(s, nil)
//	login := headgate.MustParseNamed("login", "sliding-log 5/1m block 15m")
//	d, err := limiter.Allow(ctx, login, "alice")
//	if err == nil && d.Allowed { ... }
//
// Verbs: Allow and Take consume, Check decides without consuming, FillUp pours in as
// much as fits, Debit charges whatever the level, and Refund gives back what is in use.
// Wait sleeps until it may start, Reserve says when that is, and
// Settle corrects what it has cost. Acquire and WithLease hold charges of a concurrency
// limit until they are released. Once makes a request that is charged once. Block
// refuses a key for a while, Reset forgets it, Inspect, Usage and List look.
//
// A refusal is a Decision, never an error, and charges nothing. Several charges of
// one request are admitted all or none.
//
// Package store/front puts in front of a store what makes it fast for many callers, and
// removes its dead keys. A driver alone decides the same, and somebody has to call its
// Sweep.
//
// The promise: over any closed interval of the store's own decision times, or of
// the starts of what was reserved, on any key, from any number of processes, no
// more passes than [Limit.Bound] states.
//
// This package imports the standard library and packages of this module, nothing of
// others. A program compiles just the driver below store/ that it imports.
package headgate
