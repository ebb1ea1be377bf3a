// Package keycount keeps how many keys the limits of a store had when they were counted last.
package keycount

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/store"
)

// MaxLimits is for how many limits a store reports counts at most: those with the most keys.
const MaxLimits = 1000

// Largest sorts counts in place, the largest first, and returns the first MaxLimits of them.
func Largest(counts []store.KeyCount) []store.KeyCount {
	slices.SortFunc(counts, func(a, b store.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Limit, b.Limit))
	})
	return counts[:min(len(counts), MaxLimits)]
}

// A count looks at every row. So one is made every five minutes at most, and counts take at most a twentieth of the
// time. The first is made a minute after the first sweep or later, so that a process that sweeps once counts nothing.
const (
	firstDelay   = time.Minute
	minInterval  = 5 * time.Minute
	restPerCount = 20
)

// Cache keeps the result of the last count. The zero Cache has none. A Cache is safe for concurrent use.
type Cache struct {
	mu     sync.Mutex
	counts []store.KeyCount
	err    error
	next   time.Time // when the next count is due; zero: nobody has swept yet
}

// CountIfDue calls count if a count is due, and keeps its result. Until five minutes after the start of a count no
// other caller counts; a count that takes longer may overlap the next. Drivers call CountIfDue after each sweep.
func (c *Cache) CountIfDue(ctx context.Context, count func(context.Context) ([]store.KeyCount, error)) {
	c.mu.Lock()
	start := sched.Now()
	isDue := !c.next.IsZero() && !start.Before(c.next)
	if c.next.IsZero() {
		c.next = start.Add(firstDelay)
	}
	if isDue {
		c.next = start.Add(minInterval) // for other callers, while this one counts
	}
	c.mu.Unlock()
	if !isDue {
		return
	}
	counts, err := count(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts, c.err = counts, err
	c.next = start.Add(max(minInterval, restPerCount*sched.Since(start)))
}

// Counts returns a copy of the last counts, nil if there are none, or the error of the last count.
func (c *Cache) Counts() ([]store.KeyCount, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.counts), c.err
}
