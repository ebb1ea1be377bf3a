package main

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/coalesce"
	"github.com/headgate/headgate/store/deny"
	"github.com/headgate/headgate/store/lease"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// stores is the table from URL scheme to store.
var stores = map[string]func(ctx context.Context, url string, o storeOptions) (store.Store, error){
	"memory": func(context.Context, string, storeOptions) (store.Store, error) {
		return memory.New(&memory.Config{Names: true}), nil
	},
	"sqlite": func(ctx context.Context, url string, _ storeOptions) (store.Store, error) {
		return sqlite.Open(ctx, url, nil)
	},
	"postgres":   openPostgres,
	"postgresql": openPostgres,
	"mysql":      openMySQL,
	"mariadb":    openMySQL,
	"redis":      openRedis,
	"rediss":     openRedis,
}

// schemas is the table of what `headgate schema` prints.
var schemas = map[string]func() string{
	"mysql":      mysql.Schema,
	"postgres":   postgres.Schema,
	"sqlite":     sqlite.Schema,
	"yugabytedb": postgres.SchemaYugabyte,
}

// storeOptions are what the command line says about a store beside its URL.
type storeOptions struct {
	skipArticles bool
}

func openPostgres(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return postgres.Open(ctx, url, &postgres.Config{SkipArticles: o.skipArticles})
}

func openMySQL(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return mysql.Open(ctx, url, &mysql.Config{SkipArticles: o.skipArticles})
}

func openRedis(ctx context.Context, url string, _ storeOptions) (store.Store, error) {
	return redis.Open(ctx, url, nil)
}

// openStore opens the store of a URL.
func openStore(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	scheme, _, ok := strings.Cut(url, ":")
	open, known := stores[scheme]
	if !ok || !known {
		return nil, fmt.Errorf("%w: store: %q has no scheme that is known: %s", headgate.ErrInvalid, shown(url), strings.Join(names(stores), ", "))
	}
	return open(ctx, url, o)
}

// inFront puts in front of a store what many callers at a time want there:
// refusals repeated without asking, leases where limits say so, and batches
// shared by those who wait. A store in this process has no use for them.
func inFront(s store.Store) store.Store {
	if _, ok := s.(*memory.Store); ok {
		return s
	}
	return deny.New(lease.New(coalesce.New(s, nil), nil), nil)
}

// shown is a URL without its password.
func shown(url string) string {
	before, after, ok := strings.Cut(url, "@")
	if !ok {
		return url
	}
	if i := strings.Index(before, "://"); i >= 0 {
		if user, _, ok := strings.Cut(before[i+3:], ":"); ok {
			before = before[:i+3] + user + ":xxxxx"
		}
	}
	return before + "@" + after
}

func names[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	sort.Strings(list)
	return list
}
