// Package coarse reads the system clock for callers that read it very often.
package coarse

import (
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// Lag is how far, in microseconds, a Clock may be behind the system clock while its goroutine waits for a processor:
// two time slices of Go's scheduler. On an idle machine the Clock lags by about a millisecond.
const Lag = 20_000

const (
	tickLength   = time.Millisecond
	maxIdleTicks = 20  // ticks without a read after which the goroutine ends
	minTickReads = 100 // reads within a tick from which the goroutine is started
)

// Clock caches the system clock for callers that read it millions of times a second: a goroutine reads the system clock
// for them. Frequent reads start the goroutine. It ends by itself within a tenth of a second after the last read, and
// does not run for occasional callers, who read the system clock directly. The zero Clock is ready for concurrent use.
//
// A Clock may lag, but is not ahead unless the system clock is set back. So a charge that is refused by it may already
// be able to pass, if its wait is within Lag; an admitted charge is admitted by the system clock too.
type Clock struct {
	_    [64]byte     // readers share a cache line that is written about twice a tick
	now  atomic.Int64 // time of the last tick; 0: the goroutine does not run
	used atomic.Bool  // true if now was read since the last tick
	_    [48]byte

	running   atomic.Bool
	tickStart atomic.Int64 // start of the tick in which reads are counted, while the goroutine does not run
	reads     atomic.Int64

	// Source is the clock that is cached, in microseconds above 0. Nil: store.SystemClock. It is set before any Read.
	Source func() int64
}

func (c *Clock) readSource() int64 {
	if c.Source != nil {
		return c.Source()
	}
	return store.SystemClock()
}

// Read returns the time, and whether it is exact: read from Source just now.
func (c *Clock) Read() (now int64, exact bool) {
	if now = c.now.Load(); now == 0 {
		return c.readExact(), true
	}
	if !c.used.Load() { // written once a tick, not by each reader
		c.used.Store(true)
	}
	return now, false
}

// readExact reads Source, and starts the goroutine if it is called often.
func (c *Clock) readExact() int64 {
	now := c.readSource()
	if start := c.tickStart.Load(); now-start > tickLength.Microseconds() || now < start {
		c.tickStart.Store(now)
		c.reads.Store(0)
		return now
	}
	if c.reads.Add(1) >= minTickReads && c.running.CompareAndSwap(false, true) {
		c.used.Store(true)
		c.now.Store(now)
		sched.Go(c.tick)
	}
	return now
}

// tick updates now once a tick, until it was not read for maxIdleTicks.
func (c *Clock) tick() {
	for unused := 0; unused < maxIdleTicks; unused++ {
		sched.Sleep(tickLength)
		c.now.Store(c.readSource())
		if c.used.Load() {
			c.used.Store(false)
			unused = 0
		}
	}
	c.now.Store(0)
	c.running.Store(false)
}
