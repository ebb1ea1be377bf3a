package postgres_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/store"
)

// TestRemoveLeavesNothing removes everything that a migration has made, and nothing else.
func TestRemoveLeavesNothing(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	s := openAt(t, dsn)
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`create view public.keys_in_use as select key from headgate.cells`,
		`create table public.mine (x int)`,
		`create function public.mine() returns int language sql as 'select 1'`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
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
			t.Errorf("%q does not have %q", lines, want)
		}
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	var left []string
	if err := conn.QueryRow(t.Context(), `select array(select relname::text from pg_class
			where relnamespace = 'public'::regnamespace or relnamespace = to_regnamespace('headgate')
		union all select proname::text || '()' from pg_proc where pronamespace = 'public'::regnamespace order by 1)`).Scan(
		&left); err != nil || !slices.Equal(left, []string{"mine", "mine()"}) {
		t.Errorf("left are %q, %v", left, err)
	}
	if lines, err := s.Removal(t.Context()); err != nil || len(lines) != 0 {
		t.Errorf("after that there is %q, %v", lines, err)
	}
	if err := s.Remove(t.Context()); err != nil {
		t.Errorf("removed again: %v", err)
	}
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("a charge after that: %v", err)
	}
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Errorf("migrated again: %v", err)
	}
	if _, err := limiter(s).Allow(t.Context(), headgate.MustParse("gcra 1/s"), "k"); err != nil {
		t.Errorf("a charge after that: %v", err)
	}
}
