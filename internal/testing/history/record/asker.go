package record

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/store"
)

// Asker charges one limit and key, and records it. It is for tests that break real
// servers; simulations have callers of their own. It is safe for concurrent use.
type Asker struct {
	Recorder *Recorder
	Limit    headgate.Limit // a token bucket or a sliding log
	Key      string
	recorded history.Limit
}

// NewAsker returns an Asker with a new Recorder, which knows the limit as recorded. The name
// and version of recorded are set.
func NewAsker(limit headgate.Limit, key string, recorded history.Limit) *Asker {
	recorded.Name, recorded.Version = limit.Name(), 1
	a := &Asker{Recorder: New(nil), Limit: limit, Key: key, recorded: recorded}
	a.Recorder.Limit(recorded)
	return a
}

// Limiter is implemented by headgate.Limiter and client.Client.
type Limiter interface {
	Allow(ctx context.Context, limit headgate.Limit, key string) (headgate.Decision, error)
	Inspect(ctx context.Context, limit headgate.Limit, key string) (headgate.Status, error)
}

func (a *Asker) Allow(ctx context.Context, node string, l Limiter) (headgate.Decision, error) {
	id := a.Recorder.Call(node, history.Call{
		Verb: history.Take, Charges: []history.Charge{Charge(&a.recorded, headgate.Charge{Key: a.Key})},
	})
	d, err := l.Allow(ctx, a.Limit, a.Key)
	a.Recorder.Decided(node, id, d, err)
	return d, err
}

// RecordFinalState reads what is in use of the key, records it, and returns it. Call it when nobody asks any more.
func (a *Asker) RecordFinalState(ctx context.Context, l Limiter) (headgate.Status, error) {
	status, err := l.Inspect(ctx, a.Limit, a.Key)
	if err == nil {
		a.Recorder.State(a.recorded, status)
	}
	return status, err
}

// Answers counts what callers were answered. The zero value is ready for use by one
// goroutine at a time.
type Answers struct {
	Allowed, Refused int
	Unknown          int           // it is not known whether they were charged
	Nothing          int           // nothing was charged
	Gap              time.Duration // the longest time without a decision
	Last             time.Time     // of a decision
}

// Add counts an answer. It returns the errors that belong to no class of package store.
func (a *Answers) Add(d headgate.Decision, err error) error {
	switch {
	case err == nil:
		now := sched.Now()
		if !a.Last.IsZero() {
			a.Gap = max(a.Gap, now.Sub(a.Last))
		}
		a.Last = now
		if d.Allowed {
			a.Allowed++
		} else {
			a.Refused++
		}
	case errors.Is(err, store.ErrUnknownOutcome):
		a.Unknown++
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrReadOnly), errors.Is(err, store.ErrConflict):
		a.Nothing++
	default:
		return err
	}
	return nil
}
