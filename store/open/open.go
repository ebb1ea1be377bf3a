// Package open opens the store of a URL, as the command headgate does: for programs that choose it by their
// environment.
//
//	memory:                                   this process; ?max_keys=N&max_bytes=M
//	sqlite:headgate.db                        a file
//	postgres://user@host/db                   and postgresql
//	mysql://user@host/db                      and mariadb
//	redis://host/0                            and rediss
//
// The drivers' packages say what a URL may have. A program that imports this package links all of them; each of the
// build tags headgate_nosqlite, headgate_nopostgres, headgate_nomysql and headgate_noredis leaves one out.
package open

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Store opens the store of a URL, as a driver has it: without the wrappers of package front, which most programs want
// too, see [Limiter]. A database has to have the schema, which headgate migrate makes, or Migrate of a store that is a
// store.Migrator. Errors are headgate.ErrInvalid for a URL, and those of the driver; none shows a password.
func Store(ctx context.Context, url string) (store.Store, error) {
	return stores.Open(ctx, url, stores.Options{})
}

// Limiter opens the store of a URL, and returns a Limiter over it with the wrappers of package front and their
// defaults between, and that store. Its Close lets what is under way end. A nil config is the zero one. Errors are
// those of [Store].
func Limiter(ctx context.Context, url string, c *headgate.Config) (*headgate.Limiter, store.Store, error) {
	s, err := Store(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	s = front.New(s, nil)
	return headgate.New(s, c), s, nil
}
