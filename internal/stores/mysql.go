//go:build !headgate_nomysql

package stores

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

func init() {
	kind := Kind{Server: true, open: func(ctx context.Context, url string, o Options) (store.Store, error) {
		return mysql.Open(ctx, url, &mysql.Config{Articles: o.Articles, Logger: o.Logger, Observer: o.Observer})
	}}
	kinds["mysql"], kinds["mariadb"] = kind, kind
	Schemas["mysql"] = SQL{mysql.Schema, mysql.Articles}
}
