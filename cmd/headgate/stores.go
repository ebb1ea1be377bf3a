package main

import (
	"context"
	"fmt"
	"log/slog"
	"sort"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// storeKind says how to open the stores of a scheme.
type storeKind struct {
	open   func(ctx context.Context, url string, o storeOptions) (store.Store, error)
	server bool // it is a server, which may be away
}

// stores is the table from URL scheme to store.
var stores = map[string]storeKind{
	"memory":     {open: openMemory},
	"sqlite":     {open: openSQLite},
	"postgres":   {open: openPostgres, server: true},
	"postgresql": {open: openPostgres, server: true},
	"mysql":      {open: openMySQL, server: true},
	"mariadb":    {open: openMySQL, server: true},
	"redis":      {open: openRedis, server: true},
	"rediss":     {open: openRedis, server: true},
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
	maxKeys      int            // of each limit; 0: what the store was told before, below 0: no bound
	log          *slog.Logger   // of what a store has to say; nil: the default
	observer     store.Observer // hears of transactions that were repeated; nil: nobody
}

func openMemory(_ context.Context, url string, o storeOptions) (store.Store, error) {
	if url != "memory:" {
		return nil, headgate.Invalid("store", "memory: has no path and no options")
	}
	return memory.New(&memory.Config{Names: true, MaxKeys: o.maxKeys}), nil
}

func openSQLite(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return sqlite.Open(ctx, url, &sqlite.Config{MaxKeys: o.maxKeys, Logger: o.log})
}

func openPostgres(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return postgres.Open(ctx, url, &postgres.Config{
		SkipArticles: o.skipArticles, MaxKeys: o.maxKeys, Logger: o.log, Observer: o.observer,
	})
}

func openMySQL(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return mysql.Open(ctx, url, &mysql.Config{
		SkipArticles: o.skipArticles, MaxKeys: o.maxKeys, Logger: o.log, Observer: o.observer,
	})
}

func openRedis(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	return redis.Open(ctx, url, &redis.Config{MaxKeys: o.maxKeys, Logger: o.log, Observer: o.observer})
}

// kindOf returns the store of a URL. The error shows no more than its scheme.
func kindOf(url string) (storeKind, error) {
	scheme, _, ok := strings.Cut(url, ":")
	kind, known := stores[scheme]
	if ok && known {
		return kind, nil
	}
	problem := "the URL has no scheme"
	if scheme, _, ok := strings.Cut(store.RedactURL(url), ":"); ok {
		problem = fmt.Sprintf("the scheme %q is not known", scheme)
	}
	return kind, headgate.Invalid("store", "%s; known are %s", problem, strings.Join(names(stores), ", "))
}

// openStore opens the store of a URL.
func openStore(ctx context.Context, url string, o storeOptions) (store.Store, error) {
	kind, err := kindOf(url)
	if err != nil {
		return nil, err
	}
	return kind.open(ctx, url, o)
}

func names[V any](m map[string]V) []string {
	list := make([]string, 0, len(m))
	for name := range m {
		list = append(list, name)
	}
	sort.Strings(list)
	return list
}
