package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// uncommentedColumns are columns whose names need no comment.
const uncommentedColumns = `version applied_at only_one installed_at number limit_name key at name description updated_at rule written_at
	id window_seconds created_at author reason kind before after role`

// TestVisibleObjectsHaveComments checks that schema headgate, its tables, views, functions, composite types and columns
// of tables, and the articles' functions, have a comment for psql, except uncommentedColumns.
func TestVisibleObjectsHaveComments(t *testing.T) {
	t.Parallel()
	conn, _ := openSession(t)
	rows, err := conn.Query(t.Context(), `
		select c.oid::regclass::text, coalesce(obj_description(c.oid, 'pg_class'), '') from pg_class c
		where c.relnamespace = 'headgate'::regnamespace and c.relkind in ('r', 'v')
		union all
		select c.relname || '.' || a.attname, coalesce(col_description(c.oid, a.attnum), '') from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace = 'headgate'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
		union all
		select p.oid::regprocedure::text, coalesce(obj_description(p.oid, 'pg_proc'), '') from pg_proc p
		where p.pronamespace in ('headgate'::regnamespace, 'public'::regnamespace)
		union all
		select y.oid::regtype::text, coalesce(obj_description(y.oid, 'pg_type'), '') from pg_type y join pg_class c on c.oid = y.typrelid
		where y.typnamespace = 'headgate'::regnamespace and c.relkind = 'c'
		union all
		select 'the schema', coalesce(obj_description('headgate'::regnamespace, 'pg_namespace'), '')`)
	if err != nil {
		t.Fatal(err)
	}
	var name, comment string
	objects := 0
	if _, err := pgx.ForEachRow(rows, []any{&name, &comment}, func() error {
		objects++
		_, column, _ := strings.Cut(name, ".")
		needsNoComment := strings.Count(name, ".") == 1 && slices.Contains(strings.Fields(uncommentedColumns), column)
		if len(comment) < 10 && !needsNoComment {
			t.Errorf("%s: got the comment %q, want at least 10 characters", name, comment)
		}
		return nil
	}); err != nil || objects < 100 {
		t.Errorf("got %d objects, %v; want at least 100", objects, err)
	}
}
