// Package law is the arithmetic of Headgate: what a limit admits, when a
// refused cost can pass, when a cell is empty again.
//
// It is pure. Nothing here reads a clock, allocates a goroutine or talks to a database: time and state come in, the new
// state and an outcome go out. The package is at once the specification, the implementation for stores that live in the
// process (memory, SQLite), and the oracle against which the native copies in PL/pgSQL and other dialects are compared
// bit by bit.
//
// There are three laws. [Bucket] serves the token bucket, GCRA, the leaky bucket, the fixed window and the interval
// refill; [Window] the sliding window counter; [Log] the exact sliding window and concurrency. A new algorithm seldom
// needs a new law.
//
// # Integers
//
// Time is whole microseconds since the Unix epoch, of the store's clock. Amounts are whole credits; a limit says how
// many credits one unit of cost is ([Params].Unit). Every value and every product stays within [Max], 2^53-1, because
// Lua numbers are doubles; so the laws never multiply before they know that the product fits.
//
// # What never changes
//
// A refusal changes no level. A step of the clock backwards mints nothing. A cell is never frozen for longer than it
// takes a full cell to drain (at least two seconds) after a forward jump of the clock was taken back.
package law
