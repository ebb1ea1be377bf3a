package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// levelsAt returns the query of the view headgate.levels for the time in $1, in microseconds.
func levelsAt(t *testing.T, conn *pgx.Conn) (view string) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), `select pg_get_viewdef('headgate.levels')`).Scan(&view); err != nil {
		t.Fatal(err)
	}
	at := strings.Replace(view, "clock_timestamp()", "('epoch'::timestamptz + $1::bigint * interval '1 microsecond')",
		1)
	if at == view || strings.Contains(at, "clock_timestamp()") {
		t.Fatalf("the view does not read the clock once: %s", view)
	}
	return strings.TrimSuffix(at, ";")
}

// TestLevelsAreAsOfNow charges limits of every kind, by name and by notation, and compares the
// level in the view with a check at random later times.
func TestLevelsAreAsOfNow(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s, levels := openAt(t, dsn), levelsAt(t, conn)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	const t0 = int64(4_102_444_800_000_000)
	for i, rule := range []string{
		"token-bucket 100/s burst 200", "token-bucket 1/1h burst 3", "token-bucket 3/1m burst 7",
		"token-bucket 150001/1d burst 10", "gcra 10/s burst 5",
		"leaky-bucket 1.5/s capacity 3", "interval 100/10s burst 350", "interval 2/1m burst 3", "fixed-window 100/1m",
		"fixed-window 100/1m from-first",
		"fixed-window 9/minute", "fixed-window 9/day Europe/Berlin", "fixed-window 9/month", "sliding-window 100/1m",
		"sliding-window 3/1h", "sliding-log 5/1m", "concurrency 5 ttl 30s",
	} {
		limit := headgate.MustParse(rule)
		name := fmt.Sprint("limit-", i)
		storetest.Define(t, s, store.Item{Name: name, Text: limit.String()})
		p := limit.Params()
		for range 12 {
			cell := law.Cell{Limit: []string{name, limit.String()}[rng.IntN(2)], Key: fmt.Sprint(rng.Uint32())}
			op := law.Op{Verb: law.Take, Cell: cell, Params: p, Count: 1, Now: t0 + rng.Int64N(p.Step)}
			if p.Anchor == law.Calendar {
				op.Window = [4]int64{t0 - p.Step, t0 - 1, t0 + p.Step, t0 + 2*p.Step}
			}
			for range 1 + rng.IntN(4) {
				op.Cost = 1 + rng.Int64N(p.Capacity/2)
				applyOp(t, s, op)
				op.Now += rng.Int64N(p.Step)
			}
			for range 6 {
				op.Verb, op.Cost = law.Check, 1
				out := applyOp(t, s, op)
				want := float64((out.Used-out.Granted)*1_000_000+p.Unit-1) / 1
				var got float64
				if err := conn.QueryRow(t.Context(), `select used from (`+levels+
					`) v where limit_name = $2 and key = $3`, op.Now, cell.Limit, cell.Key).Scan(&got); err != nil {
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

// TestLevelsOfUnknownLimitsAreNeverTooLow charges limits that SQL does not know.
func TestLevelsOfUnknownLimitsAreNeverTooLow(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s, levels := openAt(t, dsn), levelsAt(t, conn)
	const t0 = int64(4_102_444_800_000_000)
	for _, rule := range []string{
		"token-bucket 100/s burst 200", "interval 100/10s burst 350", "interval 2/1m burst 3",
		"fixed-window 100/1m", "fixed-window 9/day Europe/Berlin",
	} {
		p := headgate.MustParse(rule).Params()
		op := law.Op{
			Verb: law.Take, Cell: law.Cell{Limit: "in-a-file", Key: rule}, Params: p, Cost: p.Capacity / 2,
			Count: 1, Now: t0, Window: [4]int64{t0 - p.Step, t0 - 1, t0 + p.Step, t0 + 2*p.Step},
		}
		applyOp(t, s, op)
		for range 10 {
			op.Verb, op.Cost = law.Check, 1
			out := applyOp(t, s, op)
			want := float64(out.Used-out.Granted) / float64(p.Unit)
			var got, before float64
			if err := conn.QueryRow(t.Context(),
				`select used, (select c.level::float8 / c.unit from headgate.cells c where c.key = v.key) from (`+
					levels+`) v where key = $2`, op.Now, rule).Scan(&got, &before); err != nil || got < want-1e-6 ||
				got > before {
				t.Errorf("%s: %v in use after %v, of %v, %v; a check says %v", rule, got, time.Duration(op.Now-t0)*1000,
					before, err, want)
			}
			op.Now += p.Step / 3
			if p.Step == 10_000 {
				op.Now += 300_000
			}
		}
	}
}

// TestTheViewShowsLevelsAsOfNow lets a bucket drain by making its charges older.
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
	later := func(us int64) {
		if _, err := conn.Exec(t.Context(), `update headgate.cells set at = at - $1, empty_at = empty_at - $1`, us); err != nil {
			t.Fatal(err)
		}
	}
	later(300_000)
	if second := used(); second > max(0, first-2.9) || first > 10 {
		t.Errorf("%v are in use, and %v 300 ms later", first, second)
	}
	later(800_000)
	if last := used(); last != 0 {
		t.Errorf("%v are in use after a second", last)
	}
}

// TestReadersNeedNoMoreThanTheViews reads as a role that may read the views, but no table.
func TestReadersNeedNoMoreThanTheViews(t *testing.T) {
	t.Parallel()
	conn, _ := session(t)
	reader, url := ordinary(t, conn)
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('refilled', 'interval 100/10s burst 300'), ('logged', 'sliding-log 5/1m history 1d')`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `select headgate.take(r, 'a', 3) from unnest(array['refilled', 'logged', 'interval 100/10s burst 350', 'token-bucket 5/1m', 'sliding-window 5/1m']) r`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "grant usage on schema headgate to "+reader+
		"; grant select on headgate.levels, headgate.history, headgate.blocked_per_hour to "+reader); err != nil {
		t.Fatal(err)
	}
	as := connect(t, url)
	for view, want := range map[string]int{"levels": 5, "history": 1, "blocked_per_hour": 0} {
		var n, rows int
		if err := as.QueryRow(t.Context(), "select count(*), coalesce(sum(length(v::text)), 0) from headgate."+view+
			" v").Scan(&n, &rows); err != nil || n != want {
			t.Errorf("%s: %d rows, %v", view, n, err)
		}
	}
	if _, err := as.Exec(t.Context(), "select from headgate.cells"); err == nil {
		t.Error("the role may read tables: nothing was tested")
	}
}
