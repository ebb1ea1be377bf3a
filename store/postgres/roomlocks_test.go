package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/postgres"
)

// timed takes one of a key, and says how long that took.
func timed(t *testing.T, s *postgres.Store, limit headgate.Limit, key string, most time.Duration) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	outs := make([]law.Outcome, 1)
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: key}, Params: limit.Params(), Cost: limit.Params().Unit, Count: 1}
	begin := time.Now()
	if err := errors.Join(s.Apply(ctx, []law.Op{op}, outs), outs[0].Err); err != nil {
		t.Errorf("key %s: %v", key, err)
	}
	return time.Since(begin)
}

// TestACountThatForgetsALimitBlocksNoKey lets a count that has found a limit without keys
// wait for another count.
func TestACountThatForgetsALimitBlocksNoKey(t *testing.T) {
	t.Parallel()
	s, dsn := bounded(t, 1000)
	sweep(t, s)
	empty, other := headgate.MustParse("fixed-window 10/1h"), headgate.MustParse("fixed-window 10/2h")
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), "insert into headgate.rooms (limit_name) values ($1), ($2)", empty.Name(), other.Name()); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "insert into headgate.key_counts values ($1, 0, 0, 0)", other.Name()); err != nil {
		t.Fatal(err)
	}
	counted := make(chan error)
	go func() {
		_, err := s.Sweep(context.Background(), 100)
		counted <- err
	}()
	time.Sleep(300 * time.Millisecond)
	if took := timed(t, s, empty, "new", 5*time.Second); took > time.Second {
		t.Errorf("a key waited for %v", took)
	}
	if err := tx.Rollback(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-counted; err != nil {
		t.Error(err)
	}
}
