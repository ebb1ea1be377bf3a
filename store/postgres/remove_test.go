package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestRemoveLeavesNothing checks that Remove drops what Removal lists: all that Migrate made, and views that use it.
func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	s := openAt(t, dsn)
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`create view public.keys_in_use as select key from headgate.cells`,
		`create table public.mine (x int)`,
		`create function public.mine() returns int language sql as 'select 1'`,
		`analyze`,
	} {
		mustExec(t, conn, sql)
	}
	lines, err := s.Removal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"table headgate.cells, about 1 rows", "table headgate.limits, about 0 rows", "view headgate.levels",
		"function public.check_velocity(zone integer, bucket_key text)", "view public.keys_in_use, which somebody has built on it",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("Removal: got %q, want %q in it", lines, want)
		}
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	var remaining []string
	if err := conn.QueryRow(t.Context(), `select array(select relname::text from pg_class
			where relnamespace = 'public'::regnamespace or relnamespace = to_regnamespace('headgate')
		union all select proname::text || '()' from pg_proc where pronamespace = 'public'::regnamespace order by 1)`).Scan(
		&remaining); err != nil || !slices.Equal(remaining, []string{"mine", "mine()"}) {
		t.Errorf("objects after Remove: got %q, %v; want mine and mine()", remaining, err)
	}
	if lines, err := s.Removal(t.Context()); err != nil || len(lines) != 0 {
		t.Errorf("Removal after Remove: got %q, %v; want no lines", lines, err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Errorf("second Remove: %v", err)
	}
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("Allow after Remove: got %v, want ErrSetup", err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate after Remove: %v", err)
	}
	if _, err := newLimiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Errorf("Allow after Migrate: %v", err)
	}
}
