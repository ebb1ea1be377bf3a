//go:build !headgate_nomysql

package main

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

func init() {
	kind := storeKind{open: openMySQL, server: true}
	stores["mysql"], stores["mariadb"] = kind, kind
	schemas["mysql"], articles["mysql"] = mysql.Schema, mysql.Articles
}

func openMySQL(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return mysql.Open(ctx, url, &mysql.Config{
		Articles: o.articles, Logger: o.log, Observer: o.observer,
	})
}
