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

// levelsQuery returns the query of view headgate.levels, with the time $1 in microseconds instead of the clock.
func levelsQuery(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var view string
	if err := conn.QueryRow(t.Context(), `select pg_get_viewdef('headgate.levels')`).Scan(&view); err != nil {
		t.Fatal(err)
	}
	query := strings.Replace(view, "clock_timestamp()", "('epoch'::timestamptz + $1::bigint * interval '1 microsecond')",
		1)
	if query == view || strings.Contains(query, "clock_timestamp()") {
		t.Fatalf("the view must read the clock once: %s", view)
	}
	return strings.TrimSuffix(query, ";")
}

// TestLevelsViewMatchesCheck charges limits of each kind, by name and by notation, and compares the level in the view
// with a check at random later times.
func TestLevelsViewMatchesCheck(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s, sql := openAt(t, dsn), levelsQuery(t, conn)
	seed := tier.Seed()
	rng := rand.New(rand.NewPCG(seed, 0))
	const t0 = storetest.T0
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
				// In units with 6 decimal places, rounded up, without the charge of 1 credit that a check counts.
				want := float64(((out.Used-out.Granted)*1_000_000+p.Unit-1)/p.Unit) / 1_000_000
				var got float64
				if err := conn.QueryRow(t.Context(), `select used from (`+sql+
					`) v where limit_name = $2 and key = $3`, op.Now, cell.Limit, cell.Key).Scan(&got); err != nil {
					t.Fatal(err)
				}
				if got != want {
					t.Errorf("seed %d: %s at %d: got %v in use, want %v as by Check", seed, rule, op.Now, got, want)
				}
				op.Now += rng.Int64N(p.Step)
			}
		}
	}
}

// TestLevelsOfUnknownLimitsAreNeverTooLow charges limits that SQL does not know. The view does not know their drain
// exactly: a level must be at least that of a check, and at most the stored one.
func TestLevelsOfUnknownLimitsAreNeverTooLow(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s, sql := openAt(t, dsn), levelsQuery(t, conn)
	const t0 = storetest.T0
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
			var got, storedLevel float64
			if err := conn.QueryRow(t.Context(),
				`select used, (select c.level::float8 / c.unit from headgate.cells c where c.key = v.key) from (`+
					sql+`) v where key = $2`, op.Now, rule).Scan(&got, &storedLevel); err != nil || got < want-1e-6 ||
				got > storedLevel {
				t.Errorf("%s after %v: got %v in use, %v; want %v to %v", rule, time.Duration(op.Now-t0)*1000, got, err,
					want, storedLevel)
			}
			op.Now += p.Step / 3
			if p.Step == 10_000 { // of 100/s: its steps of 10 ms are too short to empty it
				op.Now += 300_000
			}
		}
	}
}

// TestLevelsViewDrainsByTheClock ages the charges of a bucket of 10 units a second, and reads its level in the view.
func TestLevelsViewDrainsByTheClock(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	used := func() (n float64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `select used from headgate.levels where key = 'a'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	mustExec(t, conn, `select headgate.take('token-bucket 10/s burst 10', 'a', 10)`)
	firstUsed := used()
	ageCharges := func(us int64) {
		mustExec(t, conn, `update headgate.cells set at = at - $1, empty_at = empty_at - $1`, us)
	}
	ageCharges(300_000)
	if got := used(); got > max(0, firstUsed-2.9) || firstUsed > 10 { // 3 less rounding
		t.Errorf("got %v in use, and %v 300 ms later; want at most 10, and 3 less", firstUsed, got)
	}
	ageCharges(800_000)
	if got := used(); got != 0 {
		t.Errorf("got %v in use 1.1 s later, want 0", got)
	}
}

// TestViewsNeedNoRightsOnTables reads the views for people by a role that may read them, but no table.
func TestViewsNeedNoRightsOnTables(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	reader, url := createOrdinaryRole(t, conn)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('refilled', 'interval 100/10s burst 300'), ('logged', 'sliding-log 5/1m history 1d')`)
	mustExec(t, conn, `select headgate.take(r, 'a', 3) from unnest(array['refilled', 'logged', 'interval 100/10s burst 350', 'token-bucket 5/1m', 'sliding-window 5/1m']) r`)
	mustExec(t, conn, "grant usage on schema headgate to "+reader+
		"; grant select on headgate.levels, headgate.history, headgate.blocked_per_hour to "+reader)
	readerSession := connect(t, url)
	for view, want := range map[string]int{"levels": 5, "history": 1, "blocked_per_hour": 0} {
		var rows, textLength int
		if err := readerSession.QueryRow(t.Context(), "select count(*), coalesce(sum(length(v::text)), 0) from headgate."+view+
			" v").Scan(&rows, &textLength); err != nil || rows != want {
			t.Errorf("%s: got %d rows, %v; want %d", view, rows, err, want)
		}
	}
	if _, err := readerSession.Exec(t.Context(), "select from headgate.cells"); err == nil {
		t.Error("got no error for a table: the role has more rights than the test needs")
	}
}
