// Package open opens the store that a URL names, for programs that get the URL from their environment.
//
//	memory:                                   memory of this process; ?max_keys=N&max_bytes=M
//	sqlite:headgate.db                        a file
//	postgres://user@host/db                   also postgresql:
//	mysql://user@host/db                      also mariadb:
//	redis://host/0                            also rediss:, with TLS
//
// The packages of the drivers document the parameters of their URLs. A program that imports this package links all
// drivers; each of the build tags headgate_nosqlite, headgate_nopostgres, headgate_nomysql and headgate_noredis leaves
// one out.
package open

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/stores"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// Store opens the store that a URL names, without the wrappers of package front. Most programs want these too: see
// [Limiter]. A database needs the schema, which headgate migrate makes, or the method Migrate of a store.Migrator. The
// error is headgate.ErrInvalid for a wrong URL, or an error of the driver. No error shows a password.
func Store(ctx context.Context, url string) (store.Store, error) {
	return stores.Open(ctx, url, stores.Options{})
}

// Limiter opens the store that a URL names, and wraps it with package front and its defaults. It returns a Limiter over
// the wrapped store, and that store, whose Close lets the calls under way end. A nil c is a zero Config. Errors are
// the same as for [Store].
func Limiter(ctx context.Context, url string, c *headgate.Config) (*headgate.Limiter, store.Store, error) {
	s, err := Store(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	s = front.New(s, nil)
	return headgate.New(s, c), s, nil
}
