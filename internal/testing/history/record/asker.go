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

// Asker takes from one key of a limit, and records its calls. Tests that break real servers use it; the simulator has
// callers of its own. It is safe for concurrent use.
type Asker struct {
	Recorder   *Recorder
	Limit      headgate.Limit // a token bucket or a sliding log
	Key        string
	definition history.Limit
}

// NewAsker returns an Asker with a new Recorder. definition is the limit in the format of histories; NewAsker sets its
// name and version.
func NewAsker(limit headgate.Limit, key string, definition history.Limit) *Asker {
	definition.Name, definition.Version = limit.Name(), 1
	a := &Asker{Recorder: New(nil), Limit: limit, Key: key, definition: definition}
	a.Recorder.Limit(definition)
	return a
}

// Limiter is implemented by headgate.Limiter and client.Client.
type Limiter interface {
	Allow(ctx context.Context, limit headgate.Limit, key string) (headgate.Decision, error)
	Inspect(ctx context.Context, limit headgate.Limit, key string) (headgate.Status, error)
}

// Allow takes one unit by a limiter, in the name of a process, and records the call.
func (a *Asker) Allow(ctx context.Context, node string, l Limiter) (headgate.Decision, error) {
	id := a.Recorder.Call(node, history.Call{
		Verb: history.Take, Charges: []history.Charge{Charge(&a.definition, headgate.Charge{Key: a.Key})},
	})
	d, err := l.Allow(ctx, a.Limit, a.Key)
	a.Recorder.Decision(node, id, d, err)
	return d, err
}

// RecordFinalState inspects the key, and records and returns its state. Call it after all calls have returned.
func (a *Asker) RecordFinalState(ctx context.Context, l Limiter) (headgate.Status, error) {
	status, err := l.Inspect(ctx, a.Limit, a.Key)
	if err == nil {
		a.Recorder.State(a.definition, status)
	}
	return status, err
}

// Answers counts the answers that callers got. The zero value is ready for use by one goroutine at a time.
type Answers struct {
	Allowed, Refused int
	Unknown          int           // unknown outcomes
	Nothing          int           // errors with which nothing was charged
	Gap              time.Duration // the longest time between two decisions, or from Last as set before the first
	Last             time.Time     // time of the last decision
}

// Add counts an answer. It returns an error that it counts neither as Unknown nor as Nothing.
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
