package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/postgres"
)

// asWindow changes the limit of a charge to a sliding window.
func asWindow(op law.Op) law.Op {
	op.Params.Kind, op.Params.Drain = law.Window, 0
	return op
}

// asOneRequest makes charges one request with an id, or without one if id is empty. It changes ops, and returns them.
func asOneRequest(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].Group, ops[i].ID = 1, id
		if id != "" {
			ops[i].TTL = 3_600_000_000
		}
	}
	return ops
}

// TestCellsAreLockedAndMadeInOneOrder lets requests on two cells wait for the first cell. While they wait, another
// session must be able to lock or make the second cell, whether the first, the second or none exists before.
func TestCellsAreLockedAndMadeInOneOrder(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	for name, makeOps := range map[string]func(firstKey, secondKey string) []law.Op{
		"single charges": func(firstKey, secondKey string) []law.Op {
			return []law.Op{newCharge(1, firstKey, now), newCharge(2, secondKey, now)}
		},
		"several charges": func(firstKey, secondKey string) []law.Op {
			return asOneRequest("", newCharge(1, firstKey, now), newCharge(1, secondKey, now))
		},
		"a part of a count": func(firstKey, secondKey string) []law.Op {
			ops := []law.Op{newCharge(1, firstKey, now), newCharge(2, secondKey, now)}
			ops[0].Count, ops[0].Partial = 2, true
			return ops
		},
		"several charges and another verb": func(firstKey, secondKey string) []law.Op {
			reset := newCharge(2, firstKey, now)
			reset.Verb = law.Reset
			return append(asOneRequest("", newCharge(1, firstKey, now), newCharge(1, secondKey, now)), reset)
		},
		"several charges with an id": func(firstKey, secondKey string) []law.Op {
			return asOneRequest("id "+firstKey, newCharge(1, firstKey, now), newCharge(1, secondKey, now))
		},
		"windows": func(firstKey, secondKey string) []law.Op {
			return asOneRequest("", asWindow(newCharge(1, firstKey, now)), asWindow(newCharge(1, secondKey, now)))
		},
		"windows with an id": func(firstKey, secondKey string) []law.Op {
			return asOneRequest("id "+firstKey, asWindow(newCharge(1, firstKey, now)), asWindow(newCharge(1, secondKey, now)))
		},
		"two requests of an id": func(firstKey, secondKey string) []law.Op {
			request2 := asOneRequest("id "+firstKey, newCharge(2, secondKey, now))
			request2[0].Group = 2
			return append(asOneRequest("id "+firstKey, newCharge(1, firstKey, now)), request2...)
		},
		"a settle and a take": func(firstKey, secondKey string) []law.Op {
			ops := append(asOneRequest("none", newCharge(1, firstKey, now)),
				asOneRequest("id "+firstKey, newCharge(2, secondKey, now))...)
			ops[0].Verb, ops[0].TTL, ops[1].Group = law.Settle, 0, 2
			return ops
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lt := &lockOrderTest{s, connect(t, dsn), connect(t, dsn)}
			for i, exists := range [][2]bool{{true, false}, {false, true}, {false, false}} {
				firstKey, secondKey := fmt.Sprint("a ", name, i), fmt.Sprint("z ", name, i)
				lt.checkWait(t, firstKey, secondKey, exists[0], exists[1], makeOps(firstKey, secondKey))
			}
		})
	}
}

// lockOrderTest has the store whose requests wait for a cell, the session that holds the cell, and one that watches.
type lockOrderTest struct {
	s               *postgres.Store
	holder, watcher *pgx.Conn
}

// checkWait applies ops on the cells of firstKey and secondKey, while the holder locks or makes the first cell. The ops
// must wait, the watcher must be able to lock or make the second cell meanwhile, and the takes must be granted.
func (lt *lockOrderTest) checkWait(t *testing.T, firstKey, secondKey string, hasFirst, hasSecond bool, ops []law.Op) {
	t.Helper()
	exec := func(conn *pgx.Conn, sql string, args ...any) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}
	const insert = "insert into headgate.cells (limit_name, key) values ('l', $1)"
	// hold begins a transaction that locks or makes a cell. It fails at once if it would have to wait.
	hold := func(conn *pgx.Conn, key string, exists bool) error {
		err := errors.Join(exec(conn, "begin"), exec(conn, "set local lock_timeout = '1ms'"))
		if !exists {
			return errors.Join(err, exec(conn, insert, key))
		}
		return errors.Join(err, exec(conn, "select from headgate.cells where key = $1 for update nowait", key))
	}
	for key, exists := range map[string]bool{firstKey: hasFirst, secondKey: hasSecond} {
		if !exists {
			continue
		}
		if err := exec(lt.watcher, insert, key); err != nil {
			t.Fatal(err)
		}
	}
	if err := hold(lt.holder, firstKey, hasFirst); err != nil {
		t.Fatal(err)
	}
	outs := make([]law.Outcome, len(ops))
	done := make(chan error, 1)
	go func() { done <- lt.s.Apply(context.Background(), ops, outs) }()
	await.NoError(t, "a request that waits for the first cell and has not locked the second", func() error {
		if len(done) > 0 {
			t.Fatalf("the request is done: %v", <-done)
		}
		var waits bool
		err := lt.watcher.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and $1 = any (pg_blocking_pids(pid)))`,
			int32(lt.holder.PgConn().PID())).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("the request does not wait")
		}
		if err == nil {
			err = errors.Join(hold(lt.watcher, secondKey, hasSecond), exec(lt.watcher, "rollback"))
		}
		return err
	})
	if err := errors.Join(exec(lt.holder, "rollback"), await.Receive(t, "the request", done)); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if ops[i].Verb == law.Take && (out.Err != nil || out.Granted != ops[i].Count) {
			t.Errorf("op %d: got %+v, want %d granted", i, out, ops[i].Count)
		}
	}
}

// deadlockCounter is a tracer that counts the statements which fail because of a deadlock.
type deadlockCounter struct{ deadlocks atomic.Int64 }

// TraceQueryStart implements pgx.QueryTracer.
func (d *deadlockCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (d *deadlockCounter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if pg, ok := errors.AsType[*pgconn.PgError](data.Err); ok && pg.Code == "40P01" {
		d.deadlocks.Add(1)
	}
}

// TestConcurrentBatchesDoNotDeadlock charges overlapping keys by six sessions, in batches of all kinds, and checks the
// levels of the cells. Some keys are new, so the batches make their cells.
func TestConcurrentBatchesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const sessions, rounds, capacity, now = 6, 60, 8, 1_800_000_000_000_000
	cfg, err := pgxpool.ParseConfig(migrated.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	var counter deadlockCounter
	cfg.ConnConfig.Tracer, cfg.MaxConns = &counter, sessions
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	var mu sync.Mutex
	granted := map[law.Cell]int64{}
	refused := 0
	var batches atomic.Int64
	applyBatches := func(s *postgres.Store, rng *rand.Rand) {
		for round := range rounds {
			ops := randomBatch(rng, int(batches.Add(1))/2, func(group uint32, key string) law.Op {
				op := newCharge(group, key, now)
				op.Params.Capacity = capacity * 1000
				return op
			})
			outs := make([]law.Outcome, len(ops))
			if err := s.Apply(t.Context(), ops, outs); err != nil {
				t.Errorf("round %d: %v", round, err)
				return
			}
			mu.Lock()
			for i, out := range outs {
				if out.Err != nil {
					t.Errorf("round %d, op %d: %v", round, i, out.Err)
				}
				groupPasses := true
				for j := range ops {
					groupPasses = groupPasses && (ops[j].Group != ops[i].Group || outs[j].Granted > 0)
				}
				if groupPasses {
					granted[ops[i].Cell] += ops[i].Cost
				} else {
					refused++
				}
			}
			mu.Unlock()
		}
	}
	seed := tier.Seed()
	var wg sync.WaitGroup
	for i := range sessions {
		s := postgres.New(pool, nil)
		defer s.Close()
		wg.Go(func() { applyBatches(s, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
	if n := counter.deadlocks.Load(); n > 0 {
		t.Errorf("seed %d: got %d deadlocks, want 0", seed, n)
	}
	rows, err := pool.Query(t.Context(), "select limit_name, key, level from headgate.cells where level > 0")
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	var c law.Cell
	var level int64
	_, err = pgx.ForEachRow(rows, []any{&c.Limit, &c.Key, &level}, func() error {
		cells++
		if level != granted[c] || level > capacity*1000 {
			t.Errorf("%v: got level %d, want the %d that were granted, at most %d", c, level, granted[c], capacity*1000)
		}
		delete(granted, c)
		return nil
	})
	for c, n := range granted {
		if n > 0 {
			t.Errorf("%v: got no cell, want one with level %d", c, n)
		}
	}
	if t.Logf("%d cells, %d refused charges", cells, refused); err != nil || refused == 0 {
		t.Errorf("got %d refused charges, %v; want some", refused, err)
	}
}

// randomBatch returns a batch of a random kind: 0 is single charges. Its keys are up to 11 of the 20 numbers from
// firstKey on, of which some have cells already.
func randomBatch(rng *rand.Rand, firstKey int, charge func(group uint32, key string) law.Op) (ops []law.Op) {
	kind := rng.IntN(5)
	for i, k := range rng.Perm(20)[:2+rng.IntN(10)] {
		op := charge(uint32(i), fmt.Sprintf("%05d", firstKey+k))
		switch kind {
		case 1: // requests of three charges
			op.Group /= 3
		case 2: // requests of three charges with ids
			op.Group /= 3
			op.ID, op.TTL = fmt.Sprintf("%x", rng.Uint64()), 3_600_000_000
			if i%3 > 0 {
				op.ID = ops[i-1].ID
			}
		case 3: // requests of three charges of windows
			op = asWindow(op)
			op.Cell.Limit, op.Group = "w", op.Group/3
		case 4: // single charges of buckets, of windows, and with ids
			switch i % 3 {
			case 1:
				op = asWindow(op)
				op.Cell.Limit = "w"
			case 2:
				op.ID, op.TTL = fmt.Sprintf("%x", rng.Uint64()), 3_600_000_000
			}
		}
		ops = append(ops, op)
	}
	return ops
}
