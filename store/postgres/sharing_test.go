package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// admissions are the times at which each key was admitted.
type admissions struct {
	mu sync.Mutex
	at map[string][]int64
}

func (a *admissions) add(key string, at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at[key] = append(a.at[key], at)
}

// over returns how many units some key has passed beyond a token bucket, at most.
func (a *admissions) over(p *law.Params) (worst float64) {
	for _, times := range a.at {
		slices.Sort(times)
		level, last := 0.0, int64(0)
		for _, at := range times {
			level = max(0, level-float64(at-last)*float64(p.Drain)/float64(p.Step)) + float64(p.Unit)
			last = at
			worst = max(worst, level-float64(p.Capacity+p.Drain))
		}
	}
	return worst / float64(p.Unit)
}

// TestNoKeyPassesMoreThanItsLimitWhileSharingComesAndGoes lets batches, calls from SQL
// and transactions of callers take from more keys than the limit may have, while two
// processes count all the time and the maximum is changed, removed and set again.
func TestNoKeyPassesMoreThanItsLimitWhileSharingComesAndGoes(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for _, level := range []string{"read%20committed", "repeatable%20read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			comeAndGo(t, level)
		})
	}
}

func comeAndGo(t *testing.T, level string) {
	const most, keys = 10, 120
	_, dsn := bounded(t, most)
	url := dsn + "?default_transaction_isolation=" + level
	limit := headgate.MustParse("token-bucket 10/s burst 2")
	p := limit.Params()
	got := &admissions{at: map[string][]int64{}}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience) // until enough was seen
	defer cancel()
	stores := []*postgres.Store{openWith(t, url, most), openWith(t, url, 0)}
	var wg sync.WaitGroup
	var shared, periods atomic.Int64
	var quiet sync.RWMutex
	var asked atomic.Int64
	key := func() string { // with pauses, in which a shared cell becomes empty
		quiet.RLock()
		defer quiet.RUnlock()
		asked.Add(1)
		return fmt.Sprint("k", rand.IntN(keys))
	}
	for w := range 4 {
		wg.Go(func() { // batches, single ones and groups among them
			for ctx.Err() == nil {
				ops := make([]law.Op, 1+rand.IntN(6))
				for i := range ops {
					ops[i] = law.Op{
						Verb: law.Take, Group: uint32(i / (1 + w%2)),
						Cell: law.Cell{Limit: limit.Name(), Key: key()}, Params: p, Cost: p.Unit, Count: 1,
					}
				}
				outs := make([]law.Outcome, len(ops))
				if err := stores[w%2].Apply(context.Background(), ops, outs); err != nil {
					t.Errorf("apply: %v", err)
					return
				}
				got.heard(t, ops, outs, &shared)
			}
		})
	}
	for range 2 {
		wg.Go(func() { callFromSQL(ctx, t, url, limit, key, got) })
	}
	wg.Go(func() { chargeInTx(ctx, t, url, stores[0], limit, key, got) })
	for _, s := range stores {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Sweep(context.Background(), 100); err != nil && !errors.Is(err, store.ErrConflict) {
					t.Errorf("sweep: %v", err)
				}
				r := roomOf(t, s, limit)
				periods.Store(max(periods.Load(), r.Generation))
				if asked.Load() >= 5000 && periods.Load() >= 3 && shared.Load() >= 50 {
					cancel()
				}
			}
		})
	}
	wg.Go(func() { // at times all wait for the end of a period
		for ctx.Err() == nil {
			roomOf(t, stores[0], limit)
			if shared.Load()/50 <= periods.Load() {
				continue
			}
			func() {
				quiet.Lock()
				defer quiet.Unlock()
				for ctx.Err() == nil && roomOf(t, stores[0], limit).Sharing {
				}
			}()
		}
	})
	wg.Go(func() {
		conn := connect(t, dsn)
		for ctx.Err() == nil {
			if _, err := conn.Exec(context.Background(), `select headgate.set_max_keys_1($1) from pg_sleep(random())`,
				[]int{5, 10, 20, 10, -1}[rand.IntN(5)]); err != nil {
				t.Errorf("set: %v", err)
			}
		}
	})
	wg.Wait()
	admitted := 0
	for _, times := range got.at {
		admitted += len(times)
	}
	t.Logf("%d admitted, %d answers of shared cells, %d periods of sharing", admitted, shared.Load(), periods.Load())
	if over := got.over(&p); over > 0 {
		t.Errorf("a key has passed %.2f units more than its limit", over)
	}
	if shared.Load() < 50 || periods.Load() < 2 {
		t.Errorf("nothing was tested: %d answers of shared cells in %d periods", shared.Load(), periods.Load())
	}
}

// heard notes what a batch has admitted.
func (a *admissions) heard(t *testing.T, ops []law.Op, outs []law.Outcome, shared *atomic.Int64) {
	for i := 0; i < len(ops); {
		j, admitted := law.GroupEnd(ops, i), true
		for k := i; k < j; k++ {
			if outs[k].Err != nil {
				t.Errorf("take: %v", outs[k].Err)
			}
			admitted = admitted && outs[k].Granted == 1 && outs[k].Err == nil
			if outs[k].Shared {
				shared.Add(1)
			}
		}
		for ; i < j; i++ {
			if admitted {
				a.add(ops[i].Cell.Key, ops[i].DecidedAt(&outs[i]))
			}
		}
	}
}

// conflict reports whether a statement is to be repeated.
func conflict(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01")
}

func callFromSQL(ctx context.Context, t *testing.T, url string, limit headgate.Limit, key func() string,
	got *admissions,
) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	for ctx.Err() == nil {
		k := key()
		var allowed bool
		var at time.Time
		err := conn.QueryRow(context.Background(), `select allowed, at from headgate.take($1, $2)`, limit.Name(),
			k).Scan(&allowed, &at)
		switch {
		case conflict(err):
		case err != nil:
			t.Errorf("headgate.take: %v", err)
			return
		case allowed:
			got.add(k, at.UnixMicro())
		}
	}
}

func chargeInTx(ctx context.Context, t *testing.T, url string, s *postgres.Store, limit headgate.Limit,
	key func() string, got *admissions,
) {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close(context.Background())
	p := limit.Params()
	for ctx.Err() == nil {
		op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key()}, Params: p, Cost: p.Unit, Count: 1}
		outs := make([]law.Outcome, 1)
		err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
			// at a stricter level the snapshot is of now
			if _, err := tx.Exec(context.Background(), "select 1"); err != nil {
				return err
			}
			if _, err := tx.Exec(context.Background(), "select pg_sleep(0.06 * random())"); err != nil {
				return err
			}
			err := s.InTx(tx).Apply(context.Background(), []law.Op{op}, outs)
			if err == nil {
				_, err = tx.Exec(context.Background(), "select pg_sleep(0.03 * random())")
			}
			return err
		})
		switch {
		case errors.Is(err, store.ErrConflict) || conflict(err):
		case err != nil:
			t.Errorf("in a transaction: %v", err)
			return
		case outs[0].Err == nil && outs[0].Granted == 1:
			got.add(op.Cell.Key, op.DecidedAt(&outs[0]))
		}
	}
}
