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
	return d.posted(w, r, s, maxList, b, func(ctx context.Context) (any, error) {
		failed := failures{}
		got, err := d.service.Batch(ctx, b, func(err error) {
			if !gone(r, err) {
				failed.add(err)
			}
		})
		for _, f := range failed {
			d.logFailure(r, f.err, f.count)
		}
		return got, err
	})
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
