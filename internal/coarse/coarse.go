// Package coarse reads the system clock for callers that read it very often.
package coarse

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// Lag is how far, in microseconds, a Clock may lie behind the
// system clock while its goroutine waits for a processor: two time slices of
// Go's scheduler. On an idle machine it lags by about a millisecond.
const Lag = 20_000

const (
	coarseTick  = time.Millisecond
	coarseIdle  = 20  // ticks that nobody read, after which the goroutine ends
	coarseWorth = 100 // reads within a tick that are worth a goroutine
)

// Clock is the system clock for callers that read it millions of times a
// second: a goroutine reads it for them. The goroutine is started by frequent
// readers, ends by itself within a tenth of a second after the last of them,
// and does not run for occasional callers: they read the clock itself.
// The zero Clock is ready for use, by any number of goroutines.
//
// It only ever lags. So what is refused by it may pass already, if it could
// pass within Lag; what is admitted by it could have been admitted for
// longer.
type Clock struct {
	_    [64]byte     // readers share a cache line that only the goroutine writes
	now  atomic.Int64 // 0: no goroutine
	used atomic.Bool  // since the last tick
	_    [48]byte

	running atomic.Bool
	since   atomic.Int64 // start of the tick in which reads are counted, while there is no goroutine
	reads   atomic.Int64

	// Source is the clock that is read, in microseconds above 0. Nil: store.SystemClock. It is
	// set before the first Read.
	Source func() int64
}

func (c *Clock) read() int64 {
	if c.Source != nil {
		return c.Source()
	}
	return store.SystemClock()
}

// Read returns the time of the Source, and whether it is exact: read just now.
func (c *Clock) Read() (now int64, exact bool) {
	if now = c.now.Load(); now == 0 {
		return c.missed(), true
	}
	if !c.used.Load() { // written once a tick, not by each reader
		c.used.Store(true)
	}
	return now, false
}

// missed reads the system clock, and starts the goroutine if that happens
// often.
func (c *Clock) missed() int64 {
	now := c.read()
	if since := c.since.Load(); now-since > coarseTick.Microseconds() || now < since {
		c.since.Store(now)
		c.reads.Store(0)
		return now
	}
	if c.reads.Add(1) >= coarseWorth && c.running.CompareAndSwap(false, true) {
		c.used.Store(true)
		c.now.Store(now)
		sched.Go(c.tick)
	}
	return now
}

func (c *Clock) tick() {
	for unused := 0; unused < coarseIdle; unused++ {
		sched.Sleep(coarseTick)
		c.now.Store(c.read())
		if c.used.Load() {
			c.used.Store(false)
			unused = 0
		}
	}
	c.now.Store(0)
	c.running.Store(false)
}
