package rpc

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/store"
)

// arrivingCalls bounds the memory of incomplete messages. grpc itself allows 4 MiB for each stream of each connection,
// also from unknown callers. A client that sends a message at once completes it within maxWait, so at most maxWaiting
// calls may wait for longer: the oldest above that are canceled. Within maxWait, the network bounds what can arrive.
//
// A pool that counts grpc's buffers was tried: with version 1.85, the buffers of two of 40 canceled calls were not
// returned for two minutes, so a bound of these bytes would in time refuse all calls.
type arrivingCalls struct {
	mu          sync.Mutex
	calls       list.List   // of *call, the oldest first; guarded by mu
	anyoneCalls int         // how many of them are of methods for anyone; guarded by mu
	timer       *time.Timer // runs cancelLate; nil: it is not started. Guarded by mu
}

const (
	maxWait    = 250 * time.Millisecond
	maxWaiting = 16 // calls that wait for longer than maxWait, and calls of methods for anyone that wait at all
)

// call is a call that waits for its message, or for the first message of a stream.
type call struct {
	anyone    bool // the method is for anyone
	began     time.Time
	cancel    context.CancelFunc
	stopWatch func() bool   // stops watching the context of the call
	element   *list.Element // in calls; nil: it was removed. Guarded by mu of arrivingCalls
}

// callKey is the key of a *call in a context.
type callKey struct{}

// add adds a call that waits for its message, and returns its context, or store.ErrBusy. cancel cancels the context.
func (a *arrivingCalls) add(ctx context.Context, cancel context.CancelFunc, anyone bool) (context.Context, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if anyone && a.anyoneCalls >= maxWaiting {
		return nil, fmt.Errorf("%w: %d messages to methods for anyone are not complete", store.ErrBusy, maxWaiting)
	}
	c := &call{anyone: anyone, began: time.Now(), cancel: cancel}
	c.element = a.calls.PushBack(c)
	if anyone {
		a.anyoneCalls++
	}
	if a.calls.Len() > maxWaiting && a.timer == nil {
		a.timer = time.AfterFunc(maxWait, a.cancelLate)
	}
	c.stopWatch = context.AfterFunc(ctx, func() { a.finish(c) })
	return context.WithValue(ctx, callKey{}, c), nil
}

// cancelLate cancels the oldest calls that have waited for longer than maxWait, down to maxWaiting.
func (a *arrivingCalls) cancelLate() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.timer = nil
	late := 0
	now := time.Now()
	for e := a.calls.Front(); e != nil && now.Sub(e.Value.(*call).began) > maxWait; e = e.Next() {
		late++
	}
	for ; late > maxWaiting; late-- {
		c := a.calls.Front().Value.(*call)
		a.remove(c)
		c.cancel()
	}
	if a.calls.Len() > maxWaiting {
		a.timer = time.AfterFunc(maxWait/4, a.cancelLate)
	}
}

// remove removes a call from the list. The caller holds mu.
func (a *arrivingCalls) remove(c *call) {
	a.calls.Remove(c.element)
	if c.element = nil; c.anyone {
		a.anyoneCalls--
	}
}

// finish removes a call that does not wait any more.
func (a *arrivingCalls) finish(c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.element != nil {
		a.remove(c)
	}
}

// messageArrived removes the call of a context, since its message is complete.
func (a *arrivingCalls) messageArrived(ctx context.Context) {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil && c.stopWatch() {
		a.finish(c)
	}
}

// stopTimer stops the timer of cancelLate.
func (a *arrivingCalls) stopTimer() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer != nil {
		a.timer.Stop()
	}
}
