package postgres_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
)

// request returns a take with an ID, by the server's clock.
func request(id string, ttl int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Cost: 1000, Count: 1, ID: id, TTL: ttl,
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000_000, Step: 3_600_000_000, Drain: 1000},
	}
}

func TestSweepForgetsAdmissionsInPortions(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	const short, portion = 25, 10
	for i := range short {
		applyOp(t, s, request(fmt.Sprint("short ", i), 1))
	}
	applyOp(t, s, request("long", 3_600_000_000))
	for _, want := range []int{portion, portion, short - 2*portion, 0} {
		if n, err := s.Sweep(t.Context(), portion); err != nil || n != want {
			t.Errorf("swept %d, %v; want %d", n, err, want)
		}
	}
	var left string
	if err := conn.QueryRow(t.Context(), `select string_agg(id, ', ') from headgate.admissions`).Scan(
		&left); err != nil || left != "long" {
		t.Errorf("%s is left, %v", left, err)
	}
	if out := applyOp(t, s, request("long", 3_600_000_000)); !out.Replayed {
		t.Errorf("it was forgotten: %+v", out)
	}
	reset := request("", 0)
	reset.Verb = law.Reset
	applyOp(t, s, reset)
	if out := applyOp(t, s, request("long", 3_600_000_000)); out.Replayed || out.Used != 1000 {
		t.Errorf("a reset has not forgotten it: %+v", out)
	}
}

// TestManySettleAtOnce settles one charge by many callers at once, some without a change of the
// cell. One settlement counts, at any isolation level.
func TestManySettleAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without a deadline, retries end after 5 s
	defer cancel()
	for _, level := range []string{"read%20committed", "repeatable%20read", "serializable"} {
		s := openAt(t, migrated.Postgres(t)+"?pool_max_conns=8&default_transaction_isolation="+level)
		for round := range tier.Pick(4, 10, 10) {
			take := request(fmt.Sprint(round), 3_600_000_000)
			before := applyOp(t, s, take).State.Level
			var settled atomic.Int64
			var cost atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				op := take
				op.Verb, op.Cost = law.Settle, int64(i%2)*500+500
				wg.Go(func() {
					outs := make([]law.Outcome, 1)
					if err := s.Apply(ctx, []law.Op{op}, outs); err != nil {
						t.Errorf("%s: %v", level, err)
					} else if outs[0].Err == nil && !outs[0].Replayed {
						settled.Add(1)
						cost.Store(op.Cost)
					}
				})
			}
			wg.Wait()
			check := take
			check.Verb, check.ID = law.Check, ""
			if out := applyOp(t, s, check); settled.Load() != 1 || out.State.Level != before-1000+cost.Load() {
				t.Errorf("%s: settled %d times, the level is %d; it was %d and 1000 became %d", level, settled.Load(),
					out.State.Level, before, cost.Load())
			}
		}
	}
}
