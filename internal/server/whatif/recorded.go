package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// attempt is a line of a log made of a limit's history, with fields as `headgate export --history` names them.
type attempt struct {
	Key string `json:"key"`
	api.Attempt
}

// Bounds on reading a limit's history.
const (
	maxAttempts = 100_000 // of a key
	keysPerPage = 1000    // keys that are read from the store at a time
)

// openHistory returns the attempts in a limit's history as a log, to be read as q says then. finish ends it; see pipe.
func (l *Logs) openHistory(ctx context.Context, name string, q *logQuery) (
	from io.Reader, finish func() error, err error,
) {
	if err := auth.CallerOf(ctx).CheckLimit(name); err != nil {
		return nil, nil, err
	}
	if l.cfg.Names == nil || l.cfg.Limiter == nil {
		return nil, nil, headgate.ErrUnsupported
	}
	limit, err := l.cfg.Names.Find(ctx, name, "")
	if err != nil {
		return nil, nil, err
	}
	if limit.Params().History == 0 {
		return nil, nil, headgate.Invalid("recorded", "%s (%s) keeps no history; sliding-log AMOUNT/PERIOD history "+
			"PERIOD keeps all attempts. An access log can be sent instead", name, limit)
	}
	q.key, q.cfg.Cost = cmp.Or(q.key, "key"), cmp.Or(q.cfg.Cost, "cost")
	q.name, q.cfg.Format = "the history of "+name, accesslog.JSON
	from, finish = pipe(func(w io.Writer) error {
		e := json.NewEncoder(w)
		return l.eachKey(ctx, limit, func(key string) error {
			return l.eachAttempt(ctx, name, key, func(a *attempt) error { return e.Encode(a) })
		})
	})
	return from, finish, nil
}

// eachKey calls f for each key of a limit, until f returns an error.
func (l *Logs) eachKey(ctx context.Context, limit headgate.Limit, f func(key string) error) error {
	q := store.Query{Limit: limit.Name(), Max: keysPerPage}
	for {
		list, err := l.cfg.Limiter.List(ctx, q, limit)
		if err != nil {
			return err
		}
		for i := range list {
			if err := f(list[i].Key); err != nil {
				return err
			}
		}
		if len(list) < q.PageSize() {
			return nil
		}
		last := &list[len(list)-1]
		q.After = law.Cell{Limit: last.Limit, Key: last.Key}
	}
}

// eachAttempt calls f for the attempts of a key, the oldest first, until f returns an error.
func (l *Logs) eachAttempt(ctx context.Context, limit, key string, f func(*attempt) error) error {
	keyLimit, err := l.cfg.Names.Find(ctx, limit, key) // an override or a plan may replace the limit
	if err != nil {
		return err
	}
	list, err := l.cfg.Limiter.Attempts(ctx, keyLimit, key, maxAttempts+1)
	if err != nil {
		return err
	}
	if len(list) > maxAttempts {
		return headgate.Invalid("recorded", "%+.60q has more than %d attempts", key, maxAttempts)
	}
	for _, a := range slices.Backward(list) {
		entry := api.Attempt{
			At: a.At.UnixMicro(), Number: a.Number, Cost: json.Number(a.Cost.String()), Allowed: a.Allowed,
		}
		if err := f(&attempt{key, entry}); err != nil {
			return err
		}
	}
	return nil
}

// pipe returns a reader of what write writes. end stops write, and returns an error that was not due to that.
func pipe(write func(io.Writer) error) (r io.Reader, end func() error) {
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := write(out)
		out.CloseWithError(err)
		done <- err
	}()
	return in, func() error {
		_ = in.Close() // cannot fail
		if err := <-done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		return nil
	}
}
