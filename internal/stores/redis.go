//go:build !headgate_noredis

package stores

import (
	"context"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
)

func init() {
	kind := Kind{Server: true, open: func(ctx context.Context, url string, o Options) (store.Store, error) {
		return redis.Open(ctx, url, &redis.Config{Logger: o.Logger, Observer: o.Observer})
	}}
	kinds["redis"], kinds["rediss"] = kind, kind
}
