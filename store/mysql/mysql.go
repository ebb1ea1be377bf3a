// Package mysql keeps cells in MariaDB 10.6 or later, MySQL 8, and what speaks their protocol: Galera clusters, and
// TiDB. Any number of processes share them.
//
// Ops are decided in one of three ways. On a lone server, over connections of [Open], a charge of a bucket is one
// statement (one.go), and so are, on MariaDB, many charges of buckets (sums.go). All else is a transaction of two
// texts, between which package law decides in this process (rows.go). The laws exist a second time in SQL, for
// procedures: see sql/procedures and docs/sql.md. [Store.WriteCatalog] lets procedures check the limits that it writes.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Migrator  = (*Store)(nil)
	_ store.Catalog   = (*Store)(nil)
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// RetryFor bounds the retries of a batch that conflicts with others when the context has no deadline. Zero: 5 s.
	RetryFor time.Duration
	// Articles names the database in which Migrate installs the procedures of the articles,
	// check_velocity and request_token. It must be the database of the URL. Empty: Migrate installs
	// none, and upgrades the ones that an earlier migration has installed.
	Articles string
	// Observer is told about transactions that were repeated. Nil: nobody is.
	Observer store.Observer
	// Logger gets a warning if the procedures are older than the binary. Nil: slog.Default().
	Logger *slog.Logger
}

// Store keeps cells in MariaDB or MySQL. It is safe for concurrent use.
type Store struct {
	transport
	def       *definition
	cfg       Config
	closed    atomic.Bool
	sweeper   sweeper
	keyCounts *keycount.Cache
	log       *slog.Logger

	oldTransaction time.Duration // how old a transaction is that Examine reports; 0: a minute
}

// sweeper has the position at which the last sweep ended, so that a pass of several sweeps reads each row once.
type sweeper struct {
	mu     sync.Mutex
	cell   law.Cell // the last cell that was read; zero: sweepCells starts over
	until  int64    // keep_until of the last entry that was read; 0: sweepEntries starts over
	number int64    // the number of that entry
}

// Open connects to a mysql:// or mariadb:// URL and checks that a server answers. Several hosts are the nodes of a
// Galera cluster; see docs/stores.md for the options. It does not migrate. Close closes the connections.
func Open(ctx context.Context, url string, cfg *Config) (*Store, error) {
	t, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	s := newStore(cfg)
	s.ownPools = true
	for _, c := range t.configs {
		inner, err := mysqldriver.NewConnector(c)
		if err != nil {
			return nil, fmt.Errorf("mysql: %w: %w", store.ErrSetup, err)
		}
		db := sql.OpenDB(&connector{Connector: inner, name: c.Addr, collation: t.collation, timeout: c.Timeout})
		db.SetMaxOpenConns(t.conns)
		db.SetMaxIdleConns(t.conns)
		db.SetConnMaxIdleTime(5 * time.Minute)
		s.nodes = append(s.nodes, &node{db: db, name: c.Addr})
	}
	var firstErr error
	for i, n := range s.nodes {
		err := n.db.PingContext(ctx)
		switch {
		case err == nil:
			return s, nil
		case firstErr == nil && errors.Is(err, store.ErrSetup):
			firstErr = classify("connect", err) // err names the node
		case firstErr == nil:
			firstErr = classify("connect to "+n.name, notSent.wrap(connectError(t.configs[i], err)))
		}
	}
	s.Close()
	return nil, firstErr
}

// New returns a store over the caller's pool, which Close leaves open. The pool's connections must have
// multiStatements=true, since a batch is one text of several statements, and the character set utf8mb4, which is the
// driver's default. Over a connection with another character set, or with an sql_mode that docs/stores.md names, Apply
// fails with ErrSetup and charges nothing. All values of the caller are hexadecimal literals in the texts, so
// interpolateParams makes no difference.
func New(db *sql.DB, cfg *Config) *Store {
	s := newStore(cfg)
	s.nodes = []*node{{db: db}}
	return s
}

// newStore returns a store without nodes.
func newStore(cfg *Config) *Store {
	s := &Store{def: currentDefinition(), keyCounts: &keycount.Cache{}, log: slog.Default()}
	s.facts = new(facts)
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.RetryFor <= 0 {
		s.cfg.RetryFor = 5 * time.Second
	}
	s.retryFor, s.observer = s.cfg.RetryFor, s.cfg.Observer
	if s.cfg.Logger != nil {
		s.log = s.cfg.Logger
	}
	return s
}

// InTx returns a store that charges inside the caller's transaction: the charge commits or rolls back with it, and the
// store never ends it. The cells stay locked until then. After a conflict the caller has to retry the whole
// transaction. Like tx, the store is not safe for concurrent use.
//
// On a member of a Group Replication an error of a write ends the connection, and with it the transaction, since a part
// of a batch could not be undone alone.
func (s *Store) InTx(tx *sql.Tx) *Store {
	inTx := &Store{def: s.def, cfg: s.cfg, keyCounts: s.keyCounts, log: s.log}
	inTx.facts, inTx.nodes, inTx.tx, inTx.retryFor = s.facts, s.nodes[:1], tx, s.retryFor
	return inTx
}

// Info implements store.Informer.
func (s *Store) Info() store.Info { return store.Info{Retries: s.retries.Load()} }

// Close implements store.Store.
func (s *Store) Close() error {
	var err error
	if !s.closed.Swap(true) && s.ownPools {
		for _, n := range s.nodes {
			err = errors.Join(err, n.db.Close())
		}
	}
	return err
}
