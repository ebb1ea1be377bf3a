package sqlite

import (
	"context"
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

// migrations returns the embedded files in order; the n-th brings the schema
// to version n, kept in the file's user_version.
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
	all := migrations()
	return strings.Join(all, "\n") + fmt.Sprintf("\npragma user_version = %d;\n", len(all))
}

// Migrate implements store.Migrator. Open has done it already.
func (s *Store) Migrate(context.Context) (report []string, err error) {
	return []string{fmt.Sprintf("the file is at version %d, nothing to do", len(migrations()))}, nil
}

// migrate brings the file to the version of this binary.
func (s *Store) migrate(ctx context.Context) (version int, err error) {
	tx, err := s.write.BeginTx(ctx, nil) // immediate, by the URL
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, "pragma user_version").Scan(&version); err != nil {
		return 0, err
	}
	all := migrations()
	if version > len(all) {
		return version, fmt.Errorf("%w: the file has version %d, this binary knows %d", store.ErrSchemaNewer, version, len(all))
	}
	if version == len(all) {
		return version, nil
	}
	for ; version < len(all); version++ {
		if _, err := tx.ExecContext(ctx, all[version]); err != nil {
			return version, err
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("pragma user_version = %d", version)); err != nil {
		return version, err
	}
	return version, tx.Commit()
}

// busy tells whether another has the file, and nothing was done.
func busy(err error) bool {
	var se *sqlite3.Error
	return errors.As(err, &se) && se.Code()&0xff == codes.SQLITE_BUSY
}

// classify wraps an error with what was being done and its class.
func classify(doing string, err error) error {
	var se *sqlite3.Error
	if !errors.As(err, &se) {
		return fmt.Errorf("sqlite: %s: %w", doing, err)
	}
	var class error
	switch se.Code() & 0xff {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		class = store.ErrConflict
	case codes.SQLITE_READONLY:
		class = store.ErrReadOnly
	case codes.SQLITE_CANTOPEN, codes.SQLITE_NOTADB, codes.SQLITE_PERM, codes.SQLITE_AUTH, codes.SQLITE_ERROR, codes.SQLITE_CORRUPT:
		class = store.ErrSetup
	default:
		class = store.ErrUnavailable // disk full, I/O error
	}
	return fmt.Errorf("sqlite: %s: %w: %w", doing, class, err)
}
