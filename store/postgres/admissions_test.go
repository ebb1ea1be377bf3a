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

// newTake returns a take of one unit from a bucket of 100,000, by the server's clock. id may be empty; ttl is in us.
func newTake(id string, ttl int64) law.Op {
	return law.Op{
		Verb: law.Take, Group: 1, Cell: law.Cell{Limit: "l", Key: "k"}, Cost: 1000, Count: 1, ID: id, TTL: ttl,
		Params: law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 100_000_000, Step: 3_600_000_000, Drain: 1000},
	}
}

// TestSweepRemovesExpiredReceiptsUpToMax checks that each Sweep removes at most max receipts, only those that have
// expired, and that a reset of the key makes its receipts ineffective.
func TestSweepRemovesExpiredReceiptsUpToMax(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	const expired, maxRows = 25, 10
	for i := range expired {
		applyOp(t, s, newTake(fmt.Sprint("short ", i), 1))
	}
	applyOp(t, s, newTake("long", 3_600_000_000))
	for _, want := range []int{maxRows, maxRows, expired - 2*maxRows, 0} {
		if n, err := s.Sweep(t.Context(), maxRows); err != nil || n != want {
			t.Errorf("Sweep removed %d, %v; want %d", n, err, want)
		}
	}
	var remainingIDs string
	if err := conn.QueryRow(t.Context(), `select string_agg(id, ', ') from headgate.admissions`).Scan(
		&remainingIDs); err != nil || remainingIDs != "long" {
		t.Errorf("remaining IDs: got %q, %v; want long", remainingIDs, err)
	}
	if out := applyOp(t, s, newTake("long", 3_600_000_000)); !out.Replayed {
		t.Errorf("the ID that has not expired: got %+v, want a replay", out)
	}
	reset := newTake("", 0)
	reset.Verb = law.Reset
	applyOp(t, s, reset)
	if out := applyOp(t, s, newTake("long", 3_600_000_000)); out.Replayed || out.Used != 1000 {
		t.Errorf("the ID after a reset: got %+v, want a new charge of 1000", out)
	}
}

// TestConcurrentSettleCountsOnce lets eight callers settle one charge at once, half of them at the cost of the take. At
// each isolation level exactly one settlement counts.
func TestConcurrentSettleCountsOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without a deadline, retries end after 5 s
	defer cancel()
	for _, level := range []string{"read%20committed", "repeatable%20read", "serializable"} {
		s := openAt(t, migrated.Postgres(t)+"?pool_max_conns=8&default_transaction_isolation="+level)
		for round := range tier.Pick(4, 10, 10) {
			take := newTake(fmt.Sprint(round), 3_600_000_000)
			levelBefore := applyOp(t, s, take).State.Level
			var settleCount atomic.Int64
			var settledCost atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				op := take
				op.Verb, op.Cost = law.Settle, int64(i%2)*500+500 // 500 or 1000
				wg.Go(func() {
					outs := make([]law.Outcome, 1)
					if err := s.Apply(ctx, []law.Op{op}, outs); err != nil {
						t.Errorf("%s: %v", level, err)
					} else if outs[0].Err == nil && !outs[0].Replayed {
						settleCount.Add(1)
						settledCost.Store(op.Cost)
					}
				})
			}
			wg.Wait()
			check := take
			check.Verb, check.ID = law.Check, ""
			wantLevel := levelBefore - 1000 + settledCost.Load()
			if n, out := settleCount.Load(), applyOp(t, s, check); n != 1 || out.State.Level != wantLevel {
				t.Errorf("%s: %d settlements, level %d; want 1, level %d", level, n, out.State.Level, wantLevel)
			}
		}
	}
}
