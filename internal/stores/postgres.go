//go:build !headgate_nopostgres

package stores

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

func init() {
	kind := Kind{Server: true, open: func(ctx context.Context, url string, o Options) (store.Store, error) {
		return postgres.Open(ctx, url, &postgres.Config{Articles: o.Articles, Logger: o.Logger, Observer: o.Observer})
	}}
	kinds["postgres"], kinds["postgresql"] = kind, kind
	Schemas["postgres"] = SQL{postgres.Schema, postgres.Articles}
	Schemas["yugabytedb"] = SQL{postgres.SchemaYugabyte, postgres.Articles}
}
