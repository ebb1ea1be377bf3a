//go:build !headgate_nosqlite

package stores

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlite"
)

func init() {
	kinds["sqlite"] = Kind{open: func(ctx context.Context, url string, _ Options) (store.Store, error) {
		return sqlite.Open(ctx, url, nil)
	}}
	Schemas["sqlite"] = SQL{Schema: sqlite.Schema}
}
