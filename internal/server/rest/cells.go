package rest

import (
	"context"
	"net/http"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// perCell is about what a cell holds on its way from the store into the answer, where
// its key and the reason of its block are long.
const perCell = 4 << 10

// cells lists keys.
func (d *door) cells(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	q := &api.CellsQuery{Max: store.DefaultMax}
	if err := parameters(r.URL.RawQuery, q); err != nil {
		return err
	}
	return d.answering(w, r, s, perCell*q.Max, func(ctx context.Context) (any, error) {
		after := law.Cell{Limit: q.AfterLimit, Key: q.AfterKey}
		return d.service.Cells(ctx, q.Limit, q.Blocked, store.Query{After: after, Max: q.Max})
	})
}
