package rivals

import (
	"context"
	"database/sql"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// upsert is the least that an exact limiter can ask of SQLite for a decision:
// GCRA, one row, one statement, one transaction.
const upsert = `insert into tat (key, at) values (?1, ?2 + ?3)
on conflict (key) do update set at = max(at, ?2) + ?3 where max(at, ?2) + ?3 - ?2 <= ?4`

// BareSQLite returns one upsert for each decision, in a file whose every
// commit is on disk before the answer, and fills it with keys. So many upserts are one
// transaction: with more than one, it answers before what it says is on disk, and is for
// one caller.
func BareSQLite(ctx context.Context, path string, q Quota, keys []string, atOnce int) (Limiter, func(), error) {
	db, err := sql.Open("sqlite", "file:"+path+
		"?_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(1)
	if err := fillSQLite(ctx, db, keys); err != nil {
		db.Close()
		return nil, nil, err
	}
	statement, err := db.PrepareContext(ctx, upsert)
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	stop := func() {
		statement.Close()
		db.Close()
	}
	g := newGCRA(q)
	open := 0
	return Func(func(ctx context.Context, key string) (bool, error) {
		if atOnce > 1 {
			if open == 0 {
				if _, err := db.ExecContext(ctx, "begin immediate"); err != nil {
					return false, err
				}
			}
			if open++; open == atOnce {
				open = 0
				defer db.ExecContext(ctx, "commit") //nolint:errcheck // the next begin fails
			}
		}
		r, err := statement.ExecContext(ctx, key, g.now(), g.each, g.burst)
		if err != nil {
			return false, err
		}
		n, err := r.RowsAffected()
		return n > 0, err
	}), stop, nil
}

func fillSQLite(ctx context.Context, db *sql.DB, keys []string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "create table tat (key text primary key, at integer not null) without rowid"); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := tx.ExecContext(ctx, "insert into tat values (?, 0)", key); err != nil {
			return err
		}
	}
	return tx.Commit()
}
