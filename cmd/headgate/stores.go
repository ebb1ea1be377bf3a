package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// storeKind says how to open the stores of a scheme.
type storeKind struct {
	open   func(ctx context.Context, url string, o storeOptions) (store.Store, error)
	server bool // it is a server, which may be away
}

// stores is the table from URL scheme to store. Each file store_*.go adds the schemes of a driver, unless a build
// tag leaves it out.
var stores = map[string]storeKind{
	"memory": {open: openMemory},
}

// schemas is the table of what `headgate schema` prints.
var schemas = map[string]func() string{}

// articles print the functions of the articles, for a schema.
var articles = map[string]func(schema string) string{}

// tags are the build tags that leave stores out, by scheme.
var tags = map[string]string{
	"sqlite":     "headgate_nosqlite",
	"postgres":   "headgate_nopostgres",
	"postgresql": "headgate_nopostgres",
	"mysql":      "headgate_nomysql",
	"mariadb":    "headgate_nomysql",
	"redis":      "headgate_noredis",
	"rediss":     "headgate_noredis",
}

// storeOptions are what the command line says about a store beside its URL.
type storeOptions struct {
	articles string         // the schema for the functions of the articles; empty: none are made
	log      *slog.Logger   // of what a store has to say; nil: the default
	observer store.Observer // hears of transactions that were repeated; nil: nobody
}

func openMemory(_ context.Context, address string, _ storeOptions) (store.Store, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(address, "memory:"), "?")
	options, err := url.ParseQuery(query)
	var keys, bytes int64
	valid := true
	for name, to := range map[string]*int64{"max_keys": &keys, "max_bytes": &bytes} {
		if values := options[name]; len(values) == 1 && err == nil {
			*to, err = strconv.ParseInt(values[0], 10, 64)
			valid = valid && *to > 0
			delete(options, name)
		}
	}
	if err != nil || !valid || path != "" || len(options) > 0 || int64(int(keys)) != keys {
		return nil, headgate.Invalid("store", "memory: has no path, and two options: memory:?max_keys=N&max_bytes=M, "+
			"the keys of each limit, and the bytes of all attempts and ids that are remembered; numbers above 0")
	}
	return memory.New(&memory.Config{Names: true, MaxKeys: int(keys), MaxBytes: bytes}), nil
}

// kindOf returns the store of a URL. The error shows no more than its scheme.
func kindOf(url string) (storeKind, error) {
	scheme, _, ok := strings.Cut(url, ":")
	kind, known := stores[scheme]
	if ok && known {
		return kind, nil
	}
	if tag := tags[scheme]; ok && tag != "" {
		return kind, headgate.Invalid("store", "this headgate was built without the stores of %s (build tag %s); "+
			"it has %s", scheme, tag, strings.Join(names(stores), ", "))
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

func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
