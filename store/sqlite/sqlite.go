// Package sqlite keeps cells in a SQLite file. It is the embedded default: no server, and state that survives a crash.
//
// This process decides, in one immediate transaction for each batch; several processes may share a file on one
// machine. With synchronous=full, the default, an admission is on disk before it is answered. With ?synchronous=normal
// a crash of the process loses nothing either, but a loss of power may undo the admissions since the log was last
// flushed, so that as much may be admitted again.
//
// Only its owner can read a new file and the files that SQLite puts beside it, whatever the umask: keys are often names
// or addresses of people. A file that exists keeps its mode.
//
// If a file is deleted or replaced while it is open, every call that uses it fails with store.ErrUnavailable.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Migrator  = (*Store)(nil)
	_ store.Catalog   = (*Store)(nil)
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	Clock store.Clock // nil: the clock of this machine
}

// Store keeps cells in a file. It is safe for concurrent use and starts no goroutine.
type Store struct {
	clock     store.Clock
	readDB    *sql.DB // nil for a store in memory
	file      file    // empty for a store in memory
	keyCounts keycount.Cache

	synchronous string // full or normal

	mu      sync.Mutex // held by the one writer; guards the fields below
	writeDB *sql.DB
	conn    *sql.Conn // the one connection of writeDB
	stmts   statements
	closed  bool
}

// Open opens or creates the file that a URL names, and migrates it. URLs are sqlite:headgate.db,
// sqlite:///var/lib/headgate/state.db or sqlite::memory:, each with ?synchronous=normal if wanted.
func Open(ctx context.Context, rawURL string, cfg *Config) (*Store, error) {
	path, synchronous, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s := &Store{clock: cmp.Or(cfg, &Config{}).Clock, synchronous: synchronous}
	if s.clock == nil {
		s.clock = store.SystemClock
	}
	if err := s.open(ctx, path, synchronous); err != nil {
		s.Close()
		return nil, classify("open "+path, err)
	}
	return s, nil
}

// parseURL returns the path of the file and the option synchronous of a URL.
func parseURL(raw string) (path, synchronous string, err error) {
	rest, ok := strings.CutPrefix(raw, "sqlite:")
	if !ok {
		return "", "", law.Invalid("URL", "it does not begin with sqlite: as sqlite:headgate.db does")
	}
	path, query, _ := strings.Cut(rest, "?")
	path = strings.TrimPrefix(path, "//")
	if path, err = url.PathUnescape(path); err != nil || path == "" {
		return "", "", law.Invalid("URL", "%q names no file", store.RedactURL(raw))
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return "", "", law.Invalid("URL",
			"%q: its options have a %% that two hexadecimal digits do not follow, or a semicolon", store.RedactURL(raw))
	}
	synchronous = "full"
	for name, values := range options {
		if name != "synchronous" {
			return "", "", law.Invalid("URL", "option %q is not known; known is synchronous", name)
		}
		synchronous = strings.ToLower(values[len(values)-1])
		if synchronous != "full" && synchronous != "normal" {
			return "", "", law.Invalid("URL", "option synchronous is %q; it is full or normal", values[0])
		}
	}
	return path, synchronous, nil
}

// busyTimeout is how long to wait for other writers of the file.
const busyTimeout = 10 * time.Second

// open opens the connections, migrates the file and prepares the statements.
func (s *Store) open(ctx context.Context, path, synchronous string) error {
	dsn := "file::memory:"
	if path != ":memory:" {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return fmt.Errorf("%w: is a directory", store.ErrSetup)
		}
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return fmt.Errorf("%w: %w", store.ErrSetup, err)
		}
		if err := makePrivate(path); err != nil {
			return fmt.Errorf("%w: %w", store.ErrSetup, err)
		}
		dsn = "file:" + (&url.URL{Path: path}).EscapedPath()
	}
	// A deferred transaction that begins to write fails if another has written meanwhile; an immediate one waits.
	timeout := fmt.Sprintf("_pragma=busy_timeout(%d)", busyTimeout.Milliseconds())
	pragmas := "?_txlock=immediate&" + timeout + "&_pragma=journal_mode(wal)&_pragma=synchronous(" + synchronous + ")"
	var err error
	if s.writeDB, err = sql.Open("sqlite", dsn+pragmas); err != nil {
		return err
	}
	s.writeDB.SetMaxOpenConns(1)
	// Nobody can turn a new file to WAL while another has it open, and SQLite does not wait for that by itself.
	if _, err := store.Retry(ctx, busyTimeout, func() error {
		_, err := s.migrate(ctx)
		return err
	}, func(err error) bool { return code(err) == codes.SQLITE_BUSY }); err != nil {
		return err
	}
	if s.conn, err = s.writeDB.Conn(ctx); err != nil {
		return err
	}
	if path != ":memory:" {
		if s.readDB, err = sql.Open("sqlite", dsn+"?"+timeout+"&_pragma=query_only(1)"); err != nil {
			return err
		}
		s.readDB.SetMaxOpenConns(4)
	}
	if err := s.stmts.prepare(ctx, s.conn); err != nil || path == ":memory:" {
		return err
	}
	return s.file.addDatabase(path)
}

// Info implements store.Informer. One batch at a time is best, since a file has one writer.
func (s *Store) Info() store.Info { return store.Info{Batches: 1} }

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.stmts.close()
	var errs []error
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	for _, db := range []*sql.DB{s.readDB, s.writeDB} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	return errors.Join(errs...)
}

// acquireReader returns a database to read, and without holding up the writer unless the store is in memory. The caller
// calls release after the reads.
func (s *Store) acquireReader(ctx context.Context) (db queryer, release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, nil, store.ErrClosed
	}
	if s.readDB == nil { // in memory: there is only the one connection
		return s.conn, s.mu.Unlock, nil
	}
	s.mu.Unlock()
	if err := s.file.check(); err != nil { // a new connection would open, or make, another file
		return nil, nil, classify("read", err)
	}
	return s.readDB, func() {}, nil
}

type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// readAll returns the rows of a query. fields returns the targets of a row's columns.
func readAll[T any](ctx context.Context, db queryer, fields func(*T) []any, query string, args ...any) (
	list []T, err error,
) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var row T
		if err := rows.Scan(fields(&row)...); err != nil {
			return nil, err
		}
		list = append(list, row)
	}
	return list, rows.Err()
}

// readShared returns the rows of a query that it makes by acquireReader. Errors name the action.
func readShared[T any](ctx context.Context, s *Store, action string, fields func(*T) []any, query string,
	args ...any,
) ([]T, error) {
	db, release, err := s.acquireReader(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	list, err := readAll(ctx, db, fields, query, args...)
	return list, classify(action, err)
}

// Cells implements store.Inspector.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	clock = s.clock()
	where, args := "", []any{}
	addCondition := func(condition string, values ...any) {
		where += " and " + condition
		args = append(args, values...)
	}
	if q.Limit != "" {
		addCondition("limit_name = ?", q.Limit)
	}
	if q.HasKey {
		addCondition("key = ?", q.Key)
	}
	if q.Blocked {
		addCondition("blocked_until > ?", clock)
	}
	if q.After != (law.Cell{}) {
		addCondition("(limit_name, key) > (?, ?)", q.After.Limit, q.After.Key)
	}
	cells, err = readShared(ctx, s, "list cells", func(c *store.Cell) []any {
		return []any{
			&c.Limit, &c.Key, &c.State.Kind, &c.State.Level, &c.State.Prev, &c.State.At, &c.State.Unit, &c.State.Step,
			&c.State.EmptyAt, &c.State.BlockedUntil, &c.Reason,
		}
	}, `select limit_name, key, law, level, prev, at, unit, step, empty_at, blocked_until, reason
		from cells where true`+where+` order by limit_name, key limit ?`, append(args, q.PageSize())...)
	return cells, clock, err
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	return readShared(ctx, s, "list entries", func(e *law.Entry) []any {
		return []any{&e.Number, &e.ID, &e.At, &e.ExpiresAt, &e.KeepUntil, &e.Cost, &e.Granted}
	}, `select number, id, at, expires_at, keep_until, cost, granted from entries
		where limit_name = ? and key = ? order by number desc limit ?`, cell.Limit, cell.Key, n)
}
