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

// inWindow changes the limit of a charge to a fixed window, which headgate_internal.apply decides.
func inWindow(op law.Op) law.Op {
	op.Params.Kind, op.Params.Drain = law.Window, 0
	return op
}

// oneRequest makes charges one request, with an id unless it is empty.
func oneRequest(id string, ops ...law.Op) []law.Op {
	for i := range ops {
		ops[i].Group, ops[i].ID = 1, id
		if id != "" {
			ops[i].TTL = 3_600_000_000
		}
	}
	return ops
}

// TestCellsAreLockedAndMadeInOneOrder makes requests on two cells wait for the first cell. While they wait, another
// session may lock or make the second cell. It does not matter which of the two cells exists before.
func TestCellsAreLockedAndMadeInOneOrder(t *testing.T) {
	t.Parallel()
	const now = 1_800_000_000_000_000
	dsn := migrated.Postgres(t)
	s := openAt(t, dsn)
	for name, ask := range map[string]func(first, second string) []law.Op{
		"single charges": func(first, second string) []law.Op {
			return []law.Op{chargeOf(1, first, now), chargeOf(2, second, now)}
		},
		"several charges": func(first, second string) []law.Op {
			return oneRequest("", chargeOf(1, first, now), chargeOf(1, second, now))
		},
		"a part of a count": func(first, second string) []law.Op {
			ops := []law.Op{chargeOf(1, first, now), chargeOf(2, second, now)}
			ops[0].Count, ops[0].Partial = 2, true
			return ops
		},
		"several charges and another verb": func(first, second string) []law.Op {
			ops := append(oneRequest("", chargeOf(1, first, now), chargeOf(1, second, now)), chargeOf(2, first, now))
			ops[2].Verb = law.Reset
			return ops
		},
		"several charges with an id": func(first, second string) []law.Op {
			return oneRequest("id "+first, chargeOf(1, first, now), chargeOf(1, second, now))
		},
		"windows": func(first, second string) []law.Op {
			return oneRequest("", inWindow(chargeOf(1, first, now)), inWindow(chargeOf(1, second, now)))
		},
		"windows with an id": func(first, second string) []law.Op {
			return oneRequest("id "+first, inWindow(chargeOf(1, first, now)), inWindow(chargeOf(1, second, now)))
		},
		"two requests of an id": func(first, second string) []law.Op {
			two := oneRequest("id "+first, chargeOf(2, second, now))
			two[0].Group = 2
			return append(oneRequest("id "+first, chargeOf(1, first, now)), two...)
		},
		"settled": func(first, second string) []law.Op {
			ops := append(oneRequest("none", chargeOf(1, first, now)),
				oneRequest("id "+first, chargeOf(2, second, now))...)
			ops[0].Verb, ops[0].TTL, ops[1].Group = law.Settle, 0, 2
			return ops
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := &lockOrderTest{s, connect(t, dsn), connect(t, dsn)}
			for i, is := range [][2]string{{"old", "new"}, {"new", "old"}, {"new", "new"}} {
				first, second := fmt.Sprint("a ", name, i), fmt.Sprint("z ", name, i)
				x.checkWait(t, first, second, is[0] == "old", is[1] == "old", ask(first, second))
			}
		})
	}
}

// lockOrderTest has the store and the sessions for a request that waits for a cell.
type lockOrderTest struct {
	s             *postgres.Store
	holder, other *pgx.Conn
}

// checkWait applies ops on two cells, of which another session has locked or is making the first. The bools say which
// cells exist before.
func (x *lockOrderTest) checkWait(t *testing.T, first, second string, firstIsThere, secondIsThere bool, ops []law.Op) {
	t.Helper()
	exec := func(conn *pgx.Conn, sql string, args ...any) error {
		_, err := conn.Exec(t.Context(), sql, args...)
		return err
	}
	const insert = "insert into headgate.cells (limit_name, key) values ('l', $1)"
	// hold locks or makes a cell. It fails at once if it would have to wait.
	hold := func(conn *pgx.Conn, key string, there bool) error {
		err := errors.Join(exec(conn, "begin"), exec(conn, "set local lock_timeout = '1ms'"))
		if !there {
			return errors.Join(err, exec(conn, insert, key))
		}
		return errors.Join(err, exec(conn, "select from headgate.cells where key = $1 for update nowait", key))
	}
	for key, there := range map[string]bool{first: firstIsThere, second: secondIsThere} {
		if !there {
			continue
		}
		if err := exec(x.other, insert, key); err != nil {
			t.Fatal(err)
		}
	}
	if err := hold(x.holder, first, firstIsThere); err != nil {
		t.Fatal(err)
	}
	outs := make([]law.Outcome, len(ops))
	done := make(chan error, 1)
	go func() { done <- x.s.Apply(context.Background(), ops, outs) }()
	await.NoError(t, "a request that waits for the first cell and holds nothing of the second", func() error {
		if len(done) > 0 {
			t.Fatalf("the request is done: %v", <-done)
		}
		var waits bool
		err := x.other.QueryRow(t.Context(), `select exists (select from pg_stat_activity
			where datname = current_database() and $1 = any (pg_blocking_pids(pid)))`,
			int32(x.holder.PgConn().PID())).Scan(&waits)
		if err == nil && !waits {
			err = errors.New("it does not wait")
		}
		if err == nil {
			err = errors.Join(hold(x.other, second, secondIsThere), exec(x.other, "rollback"))
		}
		return err
	})
	if err := errors.Join(exec(x.holder, "rollback"), await.Receive(t, "the request", done)); err != nil {
		t.Fatal(err)
	}
	for i, out := range outs {
		if ops[i].Verb == law.Take && (out.Err != nil || out.Granted != ops[i].Count) {
			t.Errorf("%d: %+v", i, out)
		}
	}
}

// deadlockCounter counts the statements that have failed because of a deadlock.
type deadlockCounter struct{ n atomic.Int64 }

func (d *deadlockCounter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (d *deadlockCounter) TraceQueryEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if pg, ok := errors.AsType[*pgconn.PgError](data.Err); ok && pg.Code == "40P01" {
		d.n.Add(1)
	}
}

// TestManyRequestsThatMakeCellsDoNotDeadlock charges the same keys by several sessions, in batches of all kinds.
// Some keys are new to all sessions.
func TestManyRequestsThatMakeCellsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	const sessions, rounds, capacity, now = 6, 60, 8, 1_800_000_000_000_000
	cfg, err := pgxpool.ParseConfig(migrated.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	var seen deadlockCounter
	cfg.ConnConfig.Tracer, cfg.MaxConns = &seen, sessions
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()

	var mu sync.Mutex
	granted := map[law.Cell]int64{}
	refused := 0
	var asked atomic.Int64
	session := func(s *postgres.Store, rng *rand.Rand) {
		for round := range rounds {
			ops := randomBatch(rng, int(asked.Add(1))/2, func(group uint32, key string) law.Op {
				op := chargeOf(group, key, now)
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
					t.Errorf("round %d: %v", round, out.Err)
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
		wg.Go(func() { session(s, rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	wg.Wait()
	if n := seen.n.Load(); n > 0 {
		t.Errorf("seed %d: %d statements were ended because of a deadlock", seed, n)
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
			t.Errorf("%v has %d, and %d of at most %d were granted", c, level, granted[c], capacity*1000)
		}
		delete(granted, c)
		return nil
	})
	for c, n := range granted {
		if n > 0 {
			t.Errorf("%v was granted %d, and is not there", c, n)
		}
	}
	if t.Logf("%d cells, %d charges were refused", cells, refused); err != nil || refused == 0 {
		t.Errorf("%v, %d were refused", err, refused)
	}
}

// randomBatch returns a batch of a random kind, each of which another function decides. Its keys are near place: some
// are new, some exist.
func randomBatch(rng *rand.Rand, place int, charge func(group uint32, key string) law.Op) (ops []law.Op) {
	kind := rng.IntN(5)
	for i, k := range rng.Perm(20)[:2+rng.IntN(10)] {
		op := charge(uint32(i), fmt.Sprintf("%05d", place+k))
		switch kind {
		case 1: // requests of three
			op.Group /= 3
		case 2:
			op.Group /= 3
			op.ID, op.TTL = fmt.Sprintf("%x", rng.Uint64()), 3_600_000_000
			if i%3 > 0 {
				op.ID = ops[i-1].ID
			}
		case 3:
			op = inWindow(op)
			op.Cell.Limit, op.Group = "w", op.Group/3
		case 4: // a mixture of all kinds
			switch i % 3 {
			case 1:
				op = inWindow(op)
				op.Cell.Limit = "w"
			case 2:
				op.ID, op.TTL = fmt.Sprintf("%x", rng.Uint64()), 3_600_000_000
			}
		}
		ops = append(ops, op)
	}
	return ops
}
