package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/store"
)

// batch serves batches.
func (d *door) batch(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	b := new(api.Batch)
	if err := take(w, r, maxList, s, b); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	failed := failures{}
	got, err := d.service.Batch(ctx, b, func(err error) {
		if !gone(r, err) {
			failed.add(err)
		}
	})
	if err != nil {
		return err
	}
	for _, f := range failed {
		d.logFailure(r, f.err, f.count)
	}
	s.Leave()
	return d.answer(w, got)
}

// failures counts errors by their class, and keeps one of each.
type failures map[error]*failure

type failure struct {
	err   error
	count int
}

func (f failures) add(err error) {
	class := store.Class(err)
	if f[class] == nil {
		f[class] = &failure{err: err}
	}
	f[class].count++
}
