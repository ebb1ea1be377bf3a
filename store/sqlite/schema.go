package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"strings"

	sqlite3 "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/headgate/headgate/store"
)

//go:embed sql/*.sql
var files embed.FS

// state is a number for the meaning of the rows. Binaries of one state can use a file side by side, though some know
// fewer migrations.
const state = 4

// firstState is the oldest state that migrations start from: older ones were never released.
const firstState = 4

// The file's user_version is perState times its state, plus the number of migrations that were applied.
const perState = 1000

// migrations returns the texts of the embedded files in order.
func migrations() []string {
	entries, err := files.ReadDir("sql")
	if err != nil {
		panic(err) // they are embedded
	}
	list := make([]string, len(entries))
	for i, e := range entries {
		text, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			panic(err)
		}
		list[i] = string(text)
	}
	return list
}

// Schema returns the whole schema as SQL.
func Schema() string {
	texts := migrations()
	return strings.Join(texts, "\n") + fmt.Sprintf("\npragma user_version = %d;\n", state*perState+len(texts))
}

// Migrate implements store.Migrator. Open has done it already.
func (s *Store) Migrate(context.Context) (report []string, err error) {
	return []string{fmt.Sprintf("the file is at version %d, nothing to do", len(migrations()))}, nil
}

// Grant implements store.Migrator.
func (s *Store) Grant(context.Context, store.Role, string) ([]string, error) {
	return nil, fmt.Errorf("sqlite: %w: a file has no users of its own", store.ErrUnsupported)
}

// Removal implements store.Migrator.
func (s *Store) Removal(ctx context.Context) ([]string, error) { return nil, s.Remove(ctx) }

// Remove implements store.Migrator.
func (s *Store) Remove(context.Context) error {
	return fmt.Errorf("sqlite: %w: stop what uses the file, and delete it with those named -wal and -shm beside it",
		store.ErrUnsupported)
}

// migrate brings the file to the version of this binary.
func (s *Store) migrate(ctx context.Context) (version int, err error) {
	tx, err := s.writeDB.BeginTx(ctx, nil) // immediate, by the URL
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, "pragma user_version").Scan(&version); err != nil {
		return 0, err
	}
	texts := migrations()
	switch fileState := version / perState; {
	case fileState > state:
		return version, fmt.Errorf("%w: the file has state %d, this binary knows %d", store.ErrSchemaNewer,
			fileState, state)
	case version > 0 && fileState < firstState:
		return version, fmt.Errorf("%w: the file has state %d, from before the first release: delete it, with those "+
			"named -wal and -shm beside it", store.ErrSetup, fileState)
	}
	applied := version % perState
	if applied >= len(texts) {
		return version, nil
	}
	for _, text := range texts[applied:] {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return version, err
		}
	}
	version = state*perState + len(texts)
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("pragma user_version = %d", version)); err != nil {
		return version, err
	}
	return version, tx.Commit()
}

// code returns SQLite's primary code for an error; SQLITE_OK if it is not an error of SQLite.
func code(err error) int {
	if e, ok := errors.AsType[*sqlite3.Error](err); ok {
		return e.Code() & 0xff
	}
	return codes.SQLITE_OK
}

// classify adds to an error the action that failed, and a class if it has none yet. A nil error stays nil.
func classify(action string, err error) error {
	if err == nil {
		return nil
	}
	if store.Class(err) != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("sqlite: %s: %w", action, err)
	}
	return fmt.Errorf("sqlite: %s: %w: %w", action, class(err), err)
}

// class returns the class of an error of SQLite. Nothing was done: a transaction that had begun was rolled back.
func class(err error) error {
	switch code(err) {
	case codes.SQLITE_OK:
		if errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) {
			return store.ErrUnavailable
		}
		return store.ErrSetup // a row that this binary cannot read
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return store.ErrConflict
	case codes.SQLITE_READONLY:
		return store.ErrReadOnly
	case codes.SQLITE_CANTOPEN, codes.SQLITE_NOTADB, codes.SQLITE_PERM, codes.SQLITE_AUTH, codes.SQLITE_ERROR,
		codes.SQLITE_CORRUPT:
		return store.ErrSetup
	case codes.SQLITE_FULL:
		return store.ErrNoSpace
	}
	return store.ErrUnavailable // I/O error
}
