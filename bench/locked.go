package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/bench/compare"
	"github.com/headgate/headgate/bench/gate"
)

// lockedFor is how long a row is locked while callers of other keys are measured.
const lockedFor = 30 * time.Second

// locker locks the row of a key under limit always, until it is released.
type locker func(ctx context.Context, dsn, key string) (release func(), err error)

// besideALock measures callers of other keys while another session has locked the row of one key, for which two more
// callers ask, and the same callers without the lock.
func (b *bench) besideALock(open func(context.Context) (string, func(), error), lock locker) func(context.Context) (
	[]compare.Cell, error,
) {
	const callers, held = 64, "locked"
	return func(ctx context.Context) ([]compare.Cell, error) {
		keys := b.many[:1000]
		s, dsn, end, err := openFilled(ctx, open, always, append([]string{held}, keys...))
		if err != nil {
			return nil, err
		}
		limiter, others := headgate.New(s, nil), compare.Callers(callers, gate.Ask(s, always, keys))
		plain := func(ctx context.Context, d time.Duration) (compare.Sample, error) {
			asking, stop := context.WithCancel(ctx)
			var two sync.WaitGroup
			for range 2 {
				two.Go(func() {
					for asking.Err() == nil {
						_, _ = limiter.Allow(asking, always, held) // it waits, or fails
					}
				})
			}
			sample, err := others(ctx, d)
			stop()
			two.Wait()
			sample.Value = float64(sample.P99) / 1e6
			return sample, err
		}
		locked := func(ctx context.Context, d time.Duration) (compare.Sample, error) {
			release, err := lock(ctx, dsn, held)
			if err != nil {
				return compare.Sample{}, err
			}
			defer release()
			return plain(ctx, d)
		}
		return []compare.Cell{
			{Side: compare.Ours, Name: gate.Name, At: "a row locked", Measure: locked, Close: end},
			{Side: compare.Self, Name: gate.Name, At: "none locked", Measure: plain},
		}, nil
	}
}

// locked is the comparison of a kind of store.
func (b *bench) locked(name, title string, goal compare.Goal, open func(context.Context) (string, func(), error),
	lock locker,
) compare.Comparison {
	return compare.Comparison{
		Name:  name + "-locked-64",
		Title: title + ", p99 of 64 callers of 1,000 keys, while another session has locked the row of one more",
		Unit:  compare.Millis, Goals: []compare.Goal{goal}, Rounds: 2, Least: lockedFor,
		Cells: b.besideALock(open, lock),
	}
}

func lockInPostgres(ctx context.Context, dsn, key string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	tag, err := conn.Exec(ctx, "begin; select from headgate.cells where limit_name = '"+always.Name()+"' and key = '"+key+
		"' for update")
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("the key %s has no row to lock", key)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

func lockInMariaDB(ctx context.Context, dsn, key string) (release func(), err error) {
	db, err := mariaPool(dsn, "", 1)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		db.Close()
		return nil, err
	}
	release = func() {
		_ = tx.Rollback()
		db.Close()
	}
	var name string
	err = tx.QueryRowContext(ctx, "SELECT cell_key FROM headgate_cells WHERE limit_name = ? AND cell_key = ? FOR UPDATE",
		always.Name(), key).Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		err = fmt.Errorf("the key %s has no row to lock", key)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
