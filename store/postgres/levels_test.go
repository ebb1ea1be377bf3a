package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// TestLevelsAreAsOfNow charges limits of every kind and reads what is in use at random
// times since: as a check tells it, for limits by name and by notation.
func TestLevelsAreAsOfNow(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s := openAt(t, dsn)
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	const t0 = int64(4_102_444_800_000_000)
	for i, rule := range []string{
		"token-bucket 100/s burst 200", "token-bucket 1/1h burst 3", "token-bucket 3/1m burst 7", "token-bucket 150001/1d burst 10", "gcra 10/s burst 5",
		"leaky-bucket 1.5/s capacity 3", "interval 100/10s burst 350", "interval 2/1m burst 3", "fixed-window 100/1m", "fixed-window 100/1m from-first",
		"fixed-window 9/minute", "fixed-window 9/day Europe/Berlin", "fixed-window 9/month", "sliding-window 100/1m", "sliding-window 3/1h", "sliding-log 5/1m", "concurrency 5 ttl 30s",
	} {
		limit := headgate.MustParse(rule)
		name := fmt.Sprint("limit-", i)
		if warnings, err := s.WriteLimits(t.Context(), []store.NamedLimit{{Name: name, Notation: limit.String()}}); err != nil || len(warnings) > 0 {
			t.Fatal(warnings, err)
		}
		p := limit.Params()
		for range 12 {
			cell := law.Cell{Limit: []string{name, limit.String()}[rng.IntN(2)], Key: fmt.Sprint(rng.Uint32())}
			op := law.Op{Verb: law.Take, Cell: cell, Params: p, Count: 1, Now: t0 + rng.Int64N(p.Step)}
			if p.Anchor == law.Calendar {
				op.Bounds = [4]int64{t0 - p.Step, t0 - 1, t0 + p.Step, t0 + 2*p.Step}
			}
			for range 1 + rng.IntN(4) {
				op.Cost = 1 + rng.Int64N(p.Capacity/2)
				one(t, s, op)
				op.Now += rng.Int64N(p.Step)
			}
			for range 6 {
				op.Verb, op.Cost = law.Check, 1
				out := one(t, s, op)
				want := float64((out.Used-out.Granted)*1_000_000+p.Unit-1) / 1
				var got float64
				if err := conn.QueryRow(t.Context(), `select headgate.used_at(c.limit_name, c.key, c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, $3)
					from headgate.cells c where c.limit_name = $1 and c.key = $2`, cell.Limit, cell.Key, op.Now).Scan(&got); err != nil {
					t.Fatal(err)
				}
				if want = float64(int64(want)/p.Unit) / 1_000_000; got != want {
					t.Errorf("seed %d: %s: %v in use at %d, a check says %v", seed, rule, got, op.Now, want)
				}
				op.Now += rng.Int64N(p.Step)
			}
		}
	}
}

// TestLevelsOfUnknownLimitsAreNeverTooLow has limits that a file knows and SQL does not.
func TestLevelsOfUnknownLimitsAreNeverTooLow(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s := openAt(t, dsn)
	const t0 = int64(4_102_444_800_000_000)
	for _, rule := range []string{"token-bucket 100/s burst 200", "interval 100/10s burst 350", "interval 2/1m burst 3", "fixed-window 100/1m", "fixed-window 9/day Europe/Berlin"} {
		p := headgate.MustParse(rule).Params()
		op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "in-a-file", Key: rule}, Params: p, Cost: p.Capacity / 2, Count: 1, Now: t0, Bounds: [4]int64{t0 - p.Step, t0 - 1, t0 + p.Step, t0 + 2*p.Step}}
		one(t, s, op)
		for range 10 {
			op.Verb, op.Cost = law.Check, 1
			out := one(t, s, op)
			want := float64(out.Used-out.Granted) / float64(p.Unit)
			var got, before float64
			if err := conn.QueryRow(t.Context(), `select headgate.used_at(c.limit_name, c.key, c.law, c.level, c.prev, c.at, c.unit, c.step, c.empty_at, $2), c.level::float8 / c.unit
				from headgate.cells c where c.key = $1`, rule, op.Now).Scan(&got, &before); err != nil || got < want-1e-6 || got > before {
				t.Errorf("%s: %v in use after %v, of %v, %v; a check says %v", rule, got, time.Duration(op.Now-t0)*1000, before, err, want)
			}
			op.Now += p.Step / 3
			if p.Step == 10_000 {
				op.Now += 300_000
			}
		}
	}
}

// TestTheViewShowsLevelsAsOfNow waits for a bucket to drain.
func TestTheViewShowsLevelsAsOfNow(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	used := func() (n float64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `select used from headgate.levels where key = 'a'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := conn.Exec(t.Context(), `select headgate.take('token-bucket 10/s burst 10', 'a', 10)`); err != nil {
		t.Fatal(err)
	}
	first := used()
	time.Sleep(300 * time.Millisecond)
	if second := used(); second > first-2.9 || first > 10 {
		t.Errorf("%v are in use, and %v 300 ms later", first, second)
	}
	time.Sleep(800 * time.Millisecond)
	if last := used(); last != 0 {
		t.Errorf("%v are in use after a second", last)
	}
}
