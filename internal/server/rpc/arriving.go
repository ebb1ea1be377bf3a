package rpc

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// arriving bounds the memory of messages that are not complete. For grpc itself that is 4 MiB for each stream of each
// connection, also of callers that are not known. Who sends a message at once has it complete within moments, so few
// calls may wait for theirs for longer: those that began first are ended. What can come within the moments is what the
// network carries.
//
// A pool that counts grpc's buffers was tried: with version 1.85, those of two of 40 calls that were ended stayed out
// for two minutes, so a bound of these bytes would in time let nobody in.
type arriving struct {
	mu    sync.Mutex
	calls list.List   // of *call, the oldest first; guarded by mu
	open  int         // of them, those of methods for anyone; guarded by mu
	look  *time.Timer // nil: nobody has to look whether some wait for too long. Guarded by mu
}

const (
	moments = 250 * time.Millisecond
	maxLate = 16 // calls that wait for longer, and those of methods for anyone that wait at all
)

// call waits for its message, or the first one of a stream.
type call struct {
	anyone bool
	began  time.Time
	end    context.CancelFunc
	stop   func() bool   // keeps the end of the context from being noticed
	place  *list.Element // in calls; nil: it was ended. Guarded by mu of arriving
}

// callKey is the key of a *call in a context.
type callKey struct{}

// enter returns the context of a call whose message is yet to come, or store.ErrBusy. end ends the context.
func (a *arriving) enter(ctx context.Context, end context.CancelFunc, anyone bool) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if anyone && a.open >= maxLate {
		return nil, fmt.Errorf("%w: %d messages to methods for anyone are not complete", store.ErrBusy, maxLate)
	}
	c := &call{anyone: anyone, began: time.Now(), end: end}
	c.place = a.calls.PushBack(c)
	if anyone {
		a.open++
	}
	if a.calls.Len() > maxLate && a.look == nil {
		a.look = time.AfterFunc(moments, a.endLate)
	}
	c.stop = context.AfterFunc(ctx, func() { a.over(c) })
	return context.WithValue(ctx, callKey{}, c), nil
}

// endLate ends calls that have waited for longer than moments, but for as many as may.
func (a *arriving) endLate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.look = nil
	late := 0
	now := time.Now()
	for e := a.calls.Front(); e != nil && now.Sub(e.Value.(*call).began) > moments; e = e.Next() {
		late++
	}
	for ; late > maxLate; late-- {
		c := a.calls.Front().Value.(*call)
		a.remove(c)
		c.end()
	}
	if a.calls.Len() > maxLate {
		a.look = time.AfterFunc(moments/4, a.endLate)
	}
}

// remove takes a call off the list. The caller holds mu.
func (a *arriving) remove(c *call) {
	a.calls.Remove(c.place)
	if c.place = nil; c.anyone {
		a.open--
	}
}

// over notes that a call has ended before its message was complete.
func (a *arriving) over(c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.place != nil {
		a.remove(c)
	}
}

// arrived notes that the message of a call is complete.
func (a *arriving) arrived(ctx context.Context) {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil && c.stop() {
		a.over(c)
	}
}

// close ends the look that is under way.
func (a *arriving) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.look != nil {
		a.look.Stop()
	}
}
