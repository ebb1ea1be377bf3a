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

// Most is the number of limits, those with the most keys, that a store reports at most.
const Most = 1000

// Largest sorts counts in place, and returns the counts of the limits with the most keys.
func Largest(counts []store.KeyCount) []store.KeyCount {
	slices.SortFunc(counts, func(a, b store.KeyCount) int {
		return cmp.Or(cmp.Compare(b.Keys, a.Keys), cmp.Compare(a.Limit, b.Limit))
	})
	return counts[:min(len(counts), Most)]
}

// A count looks at every row, so it is made every few minutes, and takes a twentieth of a connection at most.
// The first comes a minute after the first sweep, so that a process that sweeps once counts nothing.
const (
	firstDelay   = time.Minute
	minInterval  = 5 * time.Minute
	restPerCount = 20
)

// Last is the last count. The zero Last has none, and is ready for use by any number of goroutines.
type Last struct {
	mu     sync.Mutex
	counts []store.KeyCount
	err    error
	next   time.Time // zero: nobody has swept yet
}

// Count calls count if it is due. It keeps other callers of this Last from counting for five minutes; a longer count
// may overlap the next. Drivers call it at the end of each sweep.
func (l *Last) Count(ctx context.Context, count func(context.Context) ([]store.KeyCount, error)) {
	l.mu.Lock()
	start := sched.Now()
	isDue := !l.next.IsZero() && !start.Before(l.next)
	if l.next.IsZero() {
		l.next = start.Add(firstDelay)
	}
	if isDue {
		l.next = start.Add(minInterval) // for other callers, while this one counts
	}
	l.mu.Unlock()
	if !isDue {
		return
	}
	counts, err := count(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts, l.err = counts, err
	l.next = start.Add(max(minInterval, restPerCount*sched.Since(start)))
}

// Counts returns the last count, or its error.
func (l *Last) Counts() ([]store.KeyCount, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.counts), l.err
}
