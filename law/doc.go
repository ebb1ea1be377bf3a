// Package law is the arithmetic of Headgate: what a limit admits, when a refused cost can pass, when a cell is empty.
//
// It is pure. Nothing here reads a clock, starts a goroutine or talks to a database: time and state come in, the new
// state and an outcome go out. It is at once the specification, the implementation for stores that live in the process
// (memory, SQLite), and the oracle against which the copies in PL/pgSQL and other dialects are compared bit by bit.
//
// There are three laws. [Bucket] serves the token bucket, GCRA, the leaky bucket, the fixed window and the interval
// refill; [Window] the sliding window counter; [Log] the exact sliding window and concurrency.
//
// # Integers
//
// Time is whole microseconds since the Unix epoch, of the store's clock. Amounts are whole credits; a limit says how
// many credits one unit of cost is ([Params].Unit). Every value stays within [Max], 2^53-1, because Lua numbers are
// doubles. A product that may exceed it is computed in 128 bits, and only compared, divided or saturated.
//
// # What never changes
//
// A refusal charges nothing. A step of the clock backwards mints nothing. A cell is never frozen for longer than it
// takes a full cell to drain (at least two seconds) after a forward jump of the clock was taken back.
package law
