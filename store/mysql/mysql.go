// Package mysql keeps cells in MariaDB 10.6 or later, MySQL 8, and what speaks
// their protocol: Galera clusters, and TiDB. Any number of processes share
// them.
//
// The laws run in the server, in one text of several statements for each
// batch: one round trip and one transaction, and no lock held while a client
// is waited for. It uses no stored procedures; those are for people who call
// from the mysql client, and contain the same statements. See docs/sql.md.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	driver1 "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Inspector   = (*Store)(nil)
	_ store.Retrier     = (*Store)(nil)
	_ store.Migrator    = (*Store)(nil)
	_ store.LimitWriter = (*Store)(nil)
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// RetryFor bounds the retries of a batch that conflicts with others when
	// the context has no deadline. Zero: 5 s.
	RetryFor time.Duration
	// SkipArticles makes Migrate leave out the procedures named after the
	// articles, check_velocity and request_token.
	SkipArticles bool
}

// Store keeps cells in MariaDB or MySQL. It is safe for concurrent use.
type Store struct {
	nodes   []*node
	tx      *sql.Tx // of the caller; nil outside one
	own     bool    // the pools were opened here
	cfg     Config
	closed  atomic.Bool
	checked atomic.Bool // server and schema are such as this binary needs
	galera  atomic.Bool // the server is a node of a cluster
	// snapshots: it knows innodb_snapshot_isolation, as MariaDB from 10.6.18 on
	snapshots atomic.Bool
	repeats   atomic.Int64
	sweeper   sweeper
}

// Open connects to a mysql:// or mariadb:// URL and checks that a server
// answers. Several hosts are the nodes of a Galera cluster; see docs/stores.md
// for the options. It does not migrate. Close closes the connections.
func Open(ctx context.Context, url string, cfg *Config) (*Store, error) {
	configs, conns, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	s := newStore(cfg)
	s.own = true
	for _, c := range configs {
		connector, err := driver1.NewConnector(c)
		if err != nil {
			return nil, fmt.Errorf("mysql: %w: %w", store.ErrSetup, err)
		}
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(conns)
		db.SetMaxIdleConns(conns)
		db.SetConnMaxIdleTime(5 * time.Minute)
		s.nodes = append(s.nodes, &node{db: db, name: c.Addr})
	}
	var failed error
	for i, n := range s.nodes {
		if err := n.db.PingContext(ctx); err == nil {
			return s, nil
		} else if failed == nil {
			failed = classify("connect to "+n.name, &notSent{alertOf(configs[i], err)})
		}
	}
	s.Close()
	return nil, failed
}

// New returns a store over the caller's pool, which Close leaves open. The
// pool's connections must be made with multiStatements=true, since a batch is
// one text of several statements; what is the caller's is never written into
// it but as a hexadecimal literal.
func New(db *sql.DB, cfg *Config) *Store {
	s := newStore(cfg)
	s.nodes = []*node{{db: db}}
	return s
}

func newStore(cfg *Config) *Store {
	s := &Store{}
	if cfg != nil {
		s.cfg = *cfg
	}
	if s.cfg.RetryFor <= 0 {
		s.cfg.RetryFor = 5 * time.Second
	}
	return s
}

// InTx returns a store that charges inside the caller's transaction: the
// charge commits or rolls back with it, and nothing here ever ends it. Its
// cells stay locked until then, and conflicts are the caller's to retry, with
// the transaction. The store is as safe for concurrent use as tx is: not at
// all.
func (s *Store) InTx(tx *sql.Tx) *Store {
	in := &Store{nodes: s.nodes[:1], tx: tx, cfg: s.cfg}
	in.checked.Store(s.checked.Load())
	in.galera.Store(s.galera.Load())
	in.snapshots.Store(s.snapshots.Load())
	return in
}

// Retries implements store.Retrier.
func (s *Store) Retries() int64 { return s.repeats.Load() }

// Close implements store.Store.
func (s *Store) Close() error {
	var failed error
	if !s.closed.Swap(true) && s.own {
		for _, n := range s.nodes {
			if err := n.db.Close(); err != nil {
				failed = err
			}
		}
	}
	return failed
}

// querier is a pool or a transaction.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// ready says why the store cannot be used, or nil. It looks at the server and
// the version of the schema once.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.checked.Load() {
		return nil
	}
	err := s.anywhere(func(db querier) error {
		if err := checkServer(ctx, db); err != nil {
			return err
		}
		version, err := schemaVersion(ctx, db)
		if err != nil {
			return err
		}
		switch latest := latestVersion(); {
		case version > latest:
			return newer(version, latest)
		case version < latest:
			return fmt.Errorf("mysql: %w: the schema has version %d, this binary needs %d: run headgate migrate", store.ErrSetup, version, latest)
		}
		return s.look(ctx, db)
	})
	if err == nil {
		s.checked.Store(true)
	}
	return err
}

// look finds out whether the server is a node of a cluster, and whether it knows
// innodb_snapshot_isolation.
func (s *Store) look(ctx context.Context, db querier) error {
	rows, err := db.QueryContext(ctx, "SHOW VARIABLES WHERE Variable_name IN ('wsrep_on', 'innodb_snapshot_isolation')")
	if err != nil {
		return classify("read the server's variables", err)
	}
	defer rows.Close()
	values := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return classify("read the server's variables", err)
		}
		values[name] = value
	}
	if err := rows.Err(); err != nil {
		return classify("read the server's variables", err)
	}
	s.galera.Store(values["wsrep_on"] == "ON")
	s.snapshots.Store(values["innodb_snapshot_isolation"] != "")
	return nil
}

// modes are those that give the text of a batch another meaning: it would charge,
// and its answer could not be read.
var modes = []string{"ORACLE", "EMPTY_STRING_IS_NULL", "SIMULTANEOUS_ASSIGNMENT"}

// checkModes says whether the sql_mode of the connections will do.
func checkModes(mode string) error {
	for name := range strings.SplitSeq(mode, ",") {
		if slices.Contains(modes, name) {
			return fmt.Errorf("mysql: %w: sql_mode has %s, under which the statements of a batch mean something else: connect without it", store.ErrSetup, name)
		}
	}
	return nil
}

// checkServer says why the server, or the way to it, cannot be used.
func checkServer(ctx context.Context, db querier) error {
	var version, mode string
	if err := db.QueryRowContext(ctx, "SELECT VERSION(), @@sql_mode").Scan(&version, &mode); err != nil {
		return classify("read the server's version", err)
	}
	if err := errors.Join(checkVersion(version), checkModes(mode)); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, "SELECT 0; SELECT 0")
	var my *driver1.MySQLError
	switch {
	case errors.As(err, &my) && my.Number == 1064: // each of the two by itself is known everywhere
		return fmt.Errorf("mysql: %w: the connections do not take several statements at once: open them with multiStatements=true (%w)", store.ErrSetup, err)
	case err != nil:
		return classify("send several statements at once", err)
	}
	return nil
}

// checkVersion says whether a server of this version will do.
func checkVersion(version string) error {
	number := func(s string) (n int) {
		parts := strings.SplitN(s, ".", 3)
		if len(parts) < 2 {
			return 0
		}
		major, _ := strconv.Atoi(parts[0])
		minor, _ := strconv.Atoi(parts[1])
		return major*100 + minor
	}
	text, least, name := strings.TrimPrefix(version, "5.5.5-"), 800, "MySQL 8.0"
	switch {
	case strings.Contains(version, "TiDB"):
		return nil // it names a MySQL version that it is compatible with
	case strings.Contains(version, "MariaDB"):
		least, name = 1006, "MariaDB 10.6"
	}
	if number(text) < least {
		return fmt.Errorf("mysql: %w: the server has version %s; %s or later is needed", store.ErrSetup, version, name)
	}
	return nil
}

// clock reads the server's clock.
func clock(ctx context.Context, db querier) (now int64, err error) {
	if err := db.QueryRowContext(ctx, "SELECT "+readClock).Scan(&now); err != nil {
		return 0, classify("read the clock", err)
	}
	return now, nil
}

// WriteLimits implements store.LimitWriter.
func (s *Store) WriteLimits(ctx context.Context, limits []store.NamedLimit) (warnings []string, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if len(limits) == 0 {
		return nil, nil
	}
	var b strings.Builder
	b.WriteString("INSERT INTO headgate_limits (name, rule, description) VALUES ")
	args := make([]any, 0, 3*len(limits))
	for i, l := range limits {
		b.WriteString([]string{"(?, ?, ?)", ", (?, ?, ?)"}[min(i, 1)])
		args = append(args, l.Name, l.Notation, l.Description)
	}
	b.WriteString(" ON DUPLICATE KEY UPDATE rule = VALUES(rule), description = VALUES(description)")
	return nil, s.anywhere(func(db querier) error {
		if _, err := db.ExecContext(ctx, b.String(), args...); err != nil {
			return classify("write limits", err)
		}
		return nil
	})
}
