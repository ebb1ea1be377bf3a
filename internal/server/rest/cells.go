package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// perCell is about what a cell holds on its way from the store into the answer, where
// its key and the reason of its block are long.
const perCell = 4 << 10

// maxCells is how many keys a page may have.
const maxCells = 10_000

// cells lists keys.
func (d *door) cells(w http.ResponseWriter, r *http.Request, s *load.Share) error {
	limit, q, err := cellsQuery(r.URL.RawQuery)
	if err != nil {
		return err
	}
	return d.answering(w, r, s, perCell*q.Most(), func(ctx context.Context) (any, error) {
		return d.service.Cells(ctx, limit, q.Blocked, q)
	})
}

// cellsQuery reads the parameters of a list.
func cellsQuery(raw string) (limit string, q store.Query, err error) {
	values, err := edge.Query(raw, "limit", "blocked", "max", "after_limit", "after_key")
	if err != nil {
		return "", q, err
	}
	for name := range values {
		var err error
		switch value := values.Get(name); name {
		case "limit":
			limit, err = value, valid(name, law.Cell{Limit: value})
		case "after_limit":
			q.After.Limit, err = value, valid(name, law.Cell{Limit: value})
		case "after_key":
			q.After.Key, err = value, valid(name, law.Cell{Key: value})
		case "blocked":
			if q.Blocked, err = strconv.ParseBool(value); err != nil {
				err = headgate.Invalid(name, "%+.40q is not true or false", value)
			}
		case "max":
			q.Max, err = number(name, value, 1, maxCells)
		}
		if err != nil {
			return "", q, err
		}
	}
	return limit, q, nil
}

// valid says what is wrong with a parameter that names a limit or a key.
func valid(name string, c law.Cell) error {
	err := c.ValidText()
	if err == nil {
		return nil
	}
	if wrong, ok := errors.AsType[*headgate.InvalidError](err); ok {
		return headgate.Invalid(name, "%s", wrong.Problem)
	}
	return err
}
