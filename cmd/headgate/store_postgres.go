//go:build !headgate_nopostgres

package main

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

func init() {
	kind := storeKind{open: openPostgres, server: true}
	stores["postgres"], stores["postgresql"] = kind, kind
	schemas["postgres"], schemas["yugabytedb"] = postgres.Schema, postgres.SchemaYugabyte
	articles["postgres"], articles["yugabytedb"] = postgres.Articles, postgres.Articles
}

func openPostgres(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return postgres.Open(ctx, url, &postgres.Config{
		Articles: o.articles, Logger: o.log, Observer: o.observer,
	})
}
