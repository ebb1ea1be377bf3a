//go:build !headgate_nosqlite

package main

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/sqlite"
)

func init() {
	stores["sqlite"] = storeKind{open: openSQLite}
	schemas["sqlite"] = sqlite.Schema
}

func openSQLite(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return sqlite.Open(ctx, url, nil)
}
