package rest

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
)

// deadlined is what context.WithTimeout returns, without a timer until one is needed: a
// store that answers out of the memory of this process asks for Err only, and a timer
// takes longer than its answer. It is safe for concurrent use.
type deadlined struct {
	parent context.Context
	end    time.Time
	caller *auth.Caller // of the parent

	protocol service.Protocol // ProtocolHTTP, unless it is set before use

	mu     sync.Mutex
	timed  context.Context    // guarded by mu; nil: nothing but Deadline and Err was asked for
	cancel context.CancelFunc // of timed; guarded by mu
	err    error              // guarded by mu; while there is no timed, why the context has ended
}

func withTimeout(parent context.Context, d time.Duration) *deadlined {
	return &deadlined{parent: parent, end: time.Now().Add(d), caller: auth.From(parent)}
}

// Caller is for [auth.From], which would need a timer to ask for a Value.
func (d *deadlined) Caller() *auth.Caller { return d.caller }

// Protocol is for [service.ProtocolOf], which would need a timer too.
func (d *deadlined) Protocol() service.Protocol { return d.protocol }

// Deadline implements context.Context.
func (d *deadlined) Deadline() (time.Time, bool) {
	if end, ok := d.parent.Deadline(); ok && end.Before(d.end) {
		return end, true
	}
	return d.end, true
}

// Err implements context.Context.
func (d *deadlined) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errLocked()
}

func (d *deadlined) errLocked() error {
	if d.timed != nil {
		return d.timed.Err()
	}
	if d.err == nil {
		d.err = d.parent.Err()
	}
	if d.err == nil && !time.Now().Before(d.end) {
		d.err = context.DeadlineExceeded
	}
	return d.err
}

// Done implements context.Context.
func (d *deadlined) Done() <-chan struct{} { return d.context().Done() }

// Value implements context.Context. Package context finds what a context derives from by
// a Value.
func (d *deadlined) Value(key any) any { return d.context().Value(key) }

// context returns the same context with a timer.
func (d *deadlined) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed == nil {
		d.timed, d.cancel = context.WithDeadline(d.parent, d.end)
		if d.err != nil {
			d.cancel()
		}
	}
	return d.timed
}

// stop cancels the context.
func (d *deadlined) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed != nil {
		d.cancel()
	} else if d.errLocked() == nil {
		d.err = context.Canceled
	}
}
