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

// asYugabyte makes a database with the schema of YugabyteDB. A function for hash codes, and indexes
// on it, replace the hashed primary keys that PostgreSQL does not have.
func asYugabyte(t *testing.T) (dsn string) {
	t.Helper()
	dsn = dbtest.Postgres(t)
	text := strings.ReplaceAll(unsharded(postgres.SchemaYugabyte()), "yb_hash_code(", "public.yb_hash_code(")
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

// TestSweepsOfYugabyteReadSlices fills the tables with 5,000 rows each, of which a hundredth is
// dead. No sweep reads or sorts a whole table, and two passes remove the dead rows.
func TestSweepsOfYugabyteReadSlices(t *testing.T) {
	t.Parallel()
	const rows, most = 5_000, 100
	dsn := asYugabyte(t)
	w := watchPlans(t, dsn)
	s := postgres.New(w.Pool, nil)
	conn := connect(t, dsn)
	if _, err := conn.Exec(t.Context(), fill(1, rows)+
		"analyze headgate.cells; analyze headgate.entries; analyze headgate.admissions"); err != nil {
		t.Fatal(err)
	}
	removed, sweeps, sorted := 0, 0, false
	for ; s.Info().Passes < 2; sweeps++ {
		n, err := s.Sweep(t.Context(), most)
		if err != nil {
			t.Fatal(err)
		}
		if removed += n; n > most {
			t.Errorf("%d rows were removed, at most %d may be", n, most)
		}
		for _, plan := range w.plans {
			sorted = sorted || strings.Contains(plan, `"Sort"`)
		}
		// A sweep reads twice as many rows as it may remove, and a slice may be wider by half.
		w.check(t, fmt.Sprint("sweep ", sweeps), 4*most)
		if sweeps > 10*rows/most {
			t.Fatal("it comes to no end")
		}
	}
	if sorted {
		t.Error("something was sorted")
	}
	if removed != 3*rows/100 {
		t.Errorf("%d rows were removed, want %d", removed, 3*rows/100)
	}
	t.Logf("%d sweeps", sweeps)
	var left string
	if err := conn.QueryRow(t.Context(),
		`select (select count(*) from headgate.cells) || ' ' || (select count(*) from headgate.entries) || ' ' || (select count(*) from headgate.admissions)`).
		Scan(&left); err != nil || left != fmt.Sprintf("%[1]d %[1]d %[1]d", rows-rows/100) {
		t.Errorf("left are %s, %v", left, err)
	}
	// A sweep by hand reads all rows.
	if _, err := conn.Exec(t.Context(), fill(rows+1, rows+1000)); err != nil {
		t.Fatal(err)
	}
	var byHand int
	if err := conn.QueryRow(t.Context(), `select headgate.sweep(1000)`).Scan(&byHand); err != nil || byHand != 30 {
		t.Errorf("by hand: %d, %v, want 30", byHand, err)
	}
}

// TestPassesCountTheWayThroughAllRows: a store that sweeps a part at a time counts a pass when it
// has visited all rows.
func TestPassesCountTheWayThroughAllRows(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	if _, err := conn.Exec(t.Context(), fill(1, 1000)); err != nil {
		t.Fatal(err)
	}
	removed, sweeps := 0, 0
	for ; s.Info().Passes < 2 && sweeps < 1000; sweeps++ {
		n, err := s.Sweep(t.Context(), 20) // reads 40 rows of each table
		if err != nil {
			t.Fatal(err)
		}
		removed += n
	}
	if removed != 30 || sweeps < 50 || sweeps > 120 {
		t.Errorf("%d rows in %d sweeps, want 30 in 50 or a few more", removed, sweeps)
	}
}

// TestEntriesStayUntilNobodyReadsThem sweeps within 100 ms after a log became empty, and later. A decision that has
// locked the cell and read the clock before may still read the entries: without them it would be wrong.
func TestEntriesStayUntilNobodyReadsThem(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, conn := openAt(t, dsn), connect(t, dsn)
	limit := headgate.MustParse("sliding-log 1/1h")
	for try := 0; ; try++ { // until the machine is fast enough
		key := fmt.Sprint(try)
		if _, err := limiter(s).Allow(t.Context(), limit, key); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "update headgate.entries set keep_until = 0 where key = $1", key); err != nil {
			t.Fatal(err)
		}
		// left sweeps when the log has been empty for a while. It returns how many entries are left, and whether
		// the sweep came within 90 ms.
		left := func(ago string) (n int, soon bool) {
			t.Helper()
			results, err := conn.PgConn().Exec(t.Context(), fmt.Sprintf(`begin;
				update headgate.cells set empty_at = (extract(epoch from clock_timestamp() - interval '%s') * 1000000)::bigint where key = '%[2]s';
				select headgate.sweep(10);
				select count(*), clock_timestamp() < now() + interval '90 ms' from headgate.entries where key = '%[2]s';
				commit`, ago, key)).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			row := results[3].Rows[0]
			n, err = strconv.Atoi(string(row[0]))
			if err != nil {
				t.Fatal(err)
			}
			return n, string(row[1]) == "t"
		}
		if n, soon := left("0"); !soon {
			continue
		} else if n != 1 {
			t.Errorf("%d entries are left a moment after the log is empty, want 1", n)
		}
		if n, _ := left("100 ms"); n != 0 {
			t.Errorf("%d entries are left 100 ms later, want none", n)
		}
		return
	}
}

// TestASweepWaitsForNoTransaction leaves a transaction open that has locked a dead cell. The sweep removes the others.
func TestASweepWaitsForNoTransaction(t *testing.T) {
	t.Parallel()
	dsn := migrated.Postgres(t)
	s, holder := openAt(t, dsn), connect(t, dsn)
	for _, sql := range []string{
		`insert into headgate.cells (limit_name, key, law, unit, step, empty_at)
			select 'l', i::text, 1, 1, 1, 1 from generate_series(1, 5) i`,
		`begin`, `select from headgate.cells where key = '3' for update`,
	} {
		if _, err := holder.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Sweep(t.Context(), 100); err != nil || n != 4 {
		t.Errorf("swept %d, %v; want the four that nobody holds", n, err)
	}
}
