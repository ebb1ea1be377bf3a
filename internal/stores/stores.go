// Package stores opens the store of a URL. It has the table of all drivers; build tags leave some of them out.
package stores

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

// Kind opens the stores of a URL scheme.
type Kind struct {
	// Server is true if the stores are servers, which may be away.
	Server bool
	open   func(ctx context.Context, url string, o Options) (store.Store, error)
}

// Options are the settings of a store beside its URL. All fields may be zero.
type Options struct {
	// Articles is the schema for the functions of the articles, or the database of MariaDB or MySQL. Empty: the
	// functions are not created.
	Articles string
	// Logger gets the messages of a store. Nil: slog.Default().
	Logger *slog.Logger
	// Observer receives the events of a store of a server. It may be nil.
	Observer store.Observer
}

// SQL holds the schema of one kind of database, to be installed by hand.
type SQL struct {
	// Schema returns the statements that create the tables.
	Schema func() string
	// Articles returns the statements that create the functions of the articles in a schema. Nil: there are none.
	Articles func(schema string) string
}

// kinds maps URL schemes to kinds. The file of each driver adds its schemes, unless a build tag leaves the file out.
var kinds = map[string]Kind{"memory": {open: openMemory}}

// Schemas maps the names of databases, as the command headgate schema takes them, to their SQL.
var Schemas = map[string]SQL{}

// buildTags maps schemes to the build tags that leave their stores out.
var buildTags = map[string]string{
	"sqlite":     "headgate_nosqlite",
	"postgres":   "headgate_nopostgres",
	"postgresql": "headgate_nopostgres",
	"mysql":      "headgate_nomysql",
	"mariadb":    "headgate_nomysql",
	"redis":      "headgate_noredis",
	"rediss":     "headgate_noredis",
}

// Schemes returns the known URL schemes, sorted.
func Schemes() []string { return slices.Sorted(maps.Keys(kinds)) }

// Find returns the kind of a URL. Errors are headgate.ErrInvalid and quote only the scheme of the URL.
func Find(storeURL string) (Kind, error) {
	scheme, _, ok := strings.Cut(storeURL, ":")
	kind, exists := kinds[scheme]
	if ok && exists {
		return kind, nil
	}
	if tag := buildTags[scheme]; ok && tag != "" {
		return kind, headgate.Invalid("store", "this headgate was built without the stores of %s (build tag %s); "+
			"it has %s", scheme, tag, strings.Join(Schemes(), ", "))
	}
	problem := "the URL has no scheme"
	if scheme, _, ok := strings.Cut(store.RedactURL(storeURL), ":"); ok {
		problem = fmt.Sprintf("the scheme %q is not known", scheme)
	}
	return kind, headgate.Invalid("store", "%s; known are %s", problem, strings.Join(Schemes(), ", "))
}

// Open opens the store of a URL. It returns errors of Find and of the driver.
func Open(ctx context.Context, storeURL string, o Options) (store.Store, error) {
	kind, err := Find(storeURL)
	if err != nil {
		return nil, err
	}
	return kind.open(ctx, storeURL, o)
}

func openMemory(_ context.Context, address string, _ Options) (store.Store, error) {
	path, query, _ := strings.Cut(strings.TrimPrefix(address, "memory:"), "?")
	options, err := url.ParseQuery(query)
	var keys, bytes int64
	valid := true
	for name, value := range map[string]*int64{"max_keys": &keys, "max_bytes": &bytes} {
		if values := options[name]; len(values) == 1 && err == nil {
			*value, err = strconv.ParseInt(values[0], 10, 64)
			valid = valid && *value > 0
			delete(options, name)
		}
	}
	if err != nil || !valid || path != "" || len(options) > 0 || int64(int(keys)) != keys {
		return nil, headgate.Invalid("store", "memory: has no path, and two options: memory:?max_keys=N&max_bytes=M, "+
			"the keys of each limit, and the bytes of all attempts and ids that are remembered; numbers above 0")
	}
	return memory.New(&memory.Config{Names: true, MaxKeys: int(keys), MaxBytes: bytes}), nil
}
