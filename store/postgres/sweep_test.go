package postgres_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/store/postgres"
)

// newYugabyteSchema makes a database with the schema of YugabyteDB on PostgreSQL. A function for hash codes, and
// indexes on it, replace the hashed primary keys, which PostgreSQL does not have.
func newYugabyteSchema(t *testing.T) (dsn string) {
	t.Helper()
	dsn = dbtest.Postgres(t)
	text := strings.ReplaceAll(removeSharding(postgres.SchemaYugabyte()), "yb_hash_code(", "public.yb_hash_code(")
	if _, err := connect(t, dsn).Exec(t.Context(), `
		create function public.yb_hash_code(bigint) returns int language sql immutable as 'select hashint8($1) & 65535';
		create function public.yb_hash_code(text, text) returns int language sql immutable as 'select hashtext($1 || chr(31) || $2) & 65535';
		`+text+`
		create index cells_by_code on headgate.cells (public.yb_hash_code(limit_name, key));
		create index entries_by_code on headgate.entries (public.yb_hash_code(number));`); err != nil {
		t.Fatal(err)
	}
	return dsn
}

// TestSweepOfYugabyteReadsSlices fills the tables with 5,000 rows each, of which a hundredth is dead. No sweep of the
// driver may read or sort a whole table, and two passes must remove the dead rows.
func TestSweepOfYugabyteReadsSlices(t *testing.T) {
	t.Parallel()
	const rows, maxRows = 5_000, 100
	dsn := newYugabyteSchema(t)
	w := watchPlans(t, dsn)
	s := postgres.New(w.Pool, nil)
	conn := connect(t, dsn)
	mustExec(t, conn, rowInserts(1, rows)+
		"analyze headgate.cells; analyze headgate.entries; analyze headgate.admissions")
	removed, sweeps, hasSort := 0, 0, false
	for ; s.Info().Passes < 2; sweeps++ {
		n, err := s.Sweep(t.Context(), maxRows)
		if err != nil {
			t.Fatal(err)
		}
		if removed += n; n > maxRows {
			t.Errorf("sweep %d removed %d rows, want at most %d", sweeps, n, maxRows)
		}
		for _, plan := range w.plans {
			hasSort = hasSort || strings.Contains(plan, `"Sort"`)
		}
		// A slice has at most 2 * maxRows rows, a whole table 50 * maxRows.
		w.check(t, fmt.Sprint("sweep ", sweeps), 4*maxRows)
		if sweeps > 10*rows/maxRows {
			t.Fatalf("got no second pass after %d sweeps", sweeps)
		}
	}
	if hasSort {
		t.Error("got a sort in a plan, want none")
	}
	if removed != 3*rows/100 { // a hundredth of each of three tables
		t.Errorf("removed %d rows, want %d", removed, 3*rows/100)
	}
	t.Logf("%d sweeps", sweeps)
	var rowCounts string
	if err := conn.QueryRow(t.Context(),
		`select (select count(*) from headgate.cells) || ' ' || (select count(*) from headgate.entries) || ' ' || (select count(*) from headgate.admissions)`).
		Scan(&rowCounts); err != nil || rowCounts != fmt.Sprintf("%[1]d %[1]d %[1]d", rows-rows/100) {
		t.Errorf("rows after the sweeps: got %s, %v; want %d in each table", rowCounts, err, rows-rows/100)
	}
	// headgate.sweep reads all rows.
	mustExec(t, conn, rowInserts(rows+1, rows+1000))
	var sweptBySQL int
	if err := conn.QueryRow(t.Context(), `select headgate.sweep(1000)`).Scan(&sweptBySQL); err != nil || sweptBySQL != 30 {
		t.Errorf("headgate.sweep: got %d, %v; want 30", sweptBySQL, err) // a hundredth of 3 * 1000
	}
}

// TestInfoPassesCountsSweepsOfAllRows checks that Info().Passes rises when sweeps of parts have visited all rows.
func TestInfoPassesCountsSweepsOfAllRows(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	mustExec(t, conn, rowInserts(1, 1000))
	removed, sweeps := 0, 0
	for ; s.Info().Passes < 2 && sweeps < 1000; sweeps++ {
		n, err := s.Sweep(t.Context(), 20) // reads 40 rows of each table
		if err != nil {
			t.Fatal(err)
		}
		removed += n
	}
	if removed != 30 || sweeps < 50 || sweeps > 120 { // two passes of 1000 rows, 40 in a sweep
		t.Errorf("removed %d rows in %d sweeps, want 30 in 50 to 120", removed, sweeps)
	}
}

// TestSweepKeepsEntriesFor100ms sweeps within 100 ms after a log became empty, and later. A decision that read the
// clock before may still need the entries, so only the later sweep may remove them.
func TestSweepKeepsEntriesFor100ms(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	limit := headgate.MustParse("sliding-log 1/1h")
	for try := 0; ; try++ { // until the machine is fast enough
		key := fmt.Sprint(try)
		if _, err := newLimiter(s).Allow(t.Context(), limit, key); err != nil {
			t.Fatal(err)
		}
		mustExec(t, conn, "update headgate.entries set keep_until = 0 where key = $1", key)
		// sweepAfter sweeps when the log has been empty for an interval. It returns how many entries the sweep has
		// kept, and whether it took less than 90 ms.
		sweepAfter := func(interval string) (entries int, inTime bool) {
			t.Helper()
			results, err := conn.PgConn().Exec(t.Context(), fmt.Sprintf(`begin;
				update headgate.cells set empty_at = (extract(epoch from clock_timestamp() - interval '%s') * 1000000)::bigint where key = '%[2]s';
				select headgate.sweep(10);
				select count(*), clock_timestamp() < now() + interval '90 ms' from headgate.entries where key = '%[2]s';
				commit`, interval, key)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			row := results[3].Rows[0]
			entries, err = strconv.Atoi(string(row[0]))
			if err != nil {
				t.Fatal(err)
			}
			return entries, string(row[1]) == "t"
		}
		if n, inTime := sweepAfter("0"); !inTime {
			continue
		} else if n != 1 {
			t.Errorf("a sweep when the log has just become empty: got %d entries, want 1", n)
		}
		if n, _ := sweepAfter("100 ms"); n != 0 {
			t.Errorf("a sweep 100 ms later: got %d entries, want 0", n)
		}
		return
	}
}

// TestSweepWaitsForNoLock sweeps while a transaction has locked one of five dead cells: the others are removed.
func TestSweepWaitsForNoLock(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, holder := openAt(t, dsn), connect(t, dsn)
	for _, sql := range []string{
		`insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'l', i::text, 1, 1, 1, 1 from generate_series(1, 5) i`,
		`begin`, `select from headgate.cells where key = '3' for update`,
	} {
		mustExec(t, holder, sql)
	}
	if n, err := s.Sweep(t.Context(), 100); err != nil || n != 4 {
		t.Errorf("got %d removed, %v; want the 4 without a lock", n, err)
	}
}
