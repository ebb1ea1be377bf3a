package main

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/headgate/headgate/bench/rivals"
	"github.com/headgate/headgate/internal/load"
)

// bareMariaDB is the bare statements of MariaDB, prepared: rows by a primary key of two texts.
// They use no table and no statement of Headgate's.
type bareMariaDB struct {
	db             *sql.DB
	update, upsert *sql.Stmt
}

func newBareMariaDB(ctx context.Context, dsn string, keys []string) (b *bareMariaDB, end func(), err error) {
	db, err := mariaPool(dsn, "", 32)
	if err != nil {
		return nil, nil, err
	}
	b = &bareMariaDB{db: db}
	if err := b.fill(ctx, keys); err != nil {
		db.Close()
		return nil, nil, err
	}
	b.update, err = db.PrepareContext(ctx, "UPDATE bare SET level = level + 1, at = ?, empty_at = ? "+
		"WHERE limit_name = ? AND k = ? AND level <= 1000000000000")
	if err != nil {
		db.Close()
		return nil, nil, err
	}
	b.upsert, err = db.PrepareContext(ctx, "INSERT INTO bare (at, empty_at, limit_name, k, level) VALUES (?, ?, ?, ?, 1) "+
		"ON DUPLICATE KEY UPDATE level = level + 1, at = VALUES(at), empty_at = VALUES(empty_at)")
	if err != nil {
		b.update.Close()
		db.Close()
		return nil, nil, err
	}
	return b, func() {
		b.update.Close()
		b.upsert.Close()
		db.Close()
	}, nil
}

// fill makes the table, and the rows of keys and of those of several limits.
func (b *bareMariaDB) fill(ctx context.Context, keys []string) error {
	if _, err := b.db.ExecContext(ctx, bareTable); err != nil {
		return err
	}
	lists := [][]string{keys}
	if len(keys) > 1 {
		lists = append(lists, kindKeys(len(kinds), 1<<30)...)
	}
	for _, list := range lists {
		for len(list) > 0 {
			n := min(len(list), 1000)
			args := make([]any, 0, 2*n)
			for _, k := range list[:n] {
				args = append(args, bareLimit, k)
			}
			if _, err := b.db.ExecContext(ctx, "INSERT IGNORE INTO bare VALUES "+
				strings.Repeat("(?, ?, 0, 0, 0), ", n-1)+"(?, ?, 0, 0, 0)", args...); err != nil {
				return err
			}
			list = list[n:]
		}
	}
	return nil
}

// by returns the limiter of a statement on one key.
func (b *bareMariaDB) by(s *sql.Stmt) rivals.Limiter {
	return rivals.Func(func(ctx context.Context, key string) (bool, error) {
		now := time.Now().UnixMicro()
		_, err := s.ExecContext(ctx, now, now+1, bareLimit, key)
		return err == nil, err
	})
}

// several updates the rows of keys in one statement, which locks them in the order of the index.
func (b *bareMariaDB) several(ctx context.Context, keys []string) error {
	now := time.Now().UnixMicro()
	args := []any{now, now + 1, bareLimit}
	for _, k := range keys {
		args = append(args, k)
	}
	_, err := b.db.ExecContext(ctx, "UPDATE bare SET level = level + 1, at = ?, empty_at = ? WHERE limit_name = ? AND k IN (?"+
		strings.Repeat(", ?", len(keys)-1)+")", args...)
	return err
}

// many updates the rows of several keys; ids have no bare statement here.
func (b *bareMariaDB) many(keys [][]string, ids bool) load.Ask {
	if ids {
		return nil
	}
	return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
		list := make([]string, len(keys))
		for i := range keys {
			list[i] = keys[i][rng.IntN(len(keys[i]))]
		}
		err := b.several(ctx, list)
		return err == nil, err
	}
}

// batch updates the rows of many keys in one statement.
func (b *bareMariaDB) batch(keys []string) func(n int) load.Ask {
	return func(n int) load.Ask {
		return func(ctx context.Context, _ int, rng *rand.Rand) (bool, error) {
			err := b.several(ctx, several(keys, n, rng))
			return err == nil, err
		}
	}
}
