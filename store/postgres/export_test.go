package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// Revision and Fingerprint describe the functions of this binary.
var (
	Revision    = revision
	Fingerprint = current().fingerprint()
)

// ForYugabyte reports whether Migrate makes the tables of YugabyteDB on a server that reports
// this version.
func ForYugabyte(version string) bool {
	d := current().forServer(version)
	return d == yugabyte() && strings.Contains(d.tables[0].sql, "((limit_name, key) hash)")
}

// ExamineSessions runs the part of Examine about sessions. It reports a transaction that is idle for longer than idle.
func ExamineSessions(ctx context.Context, s *Store, idle time.Duration) (f store.Findings, err error) {
	err = s.examineSessionsIdle(ctx, &f, idle)
	return f, err
}

// Newer returns the store of a later binary: its functions have the next layout, and take has
// one more column. adapter is the text of functions of this layout that call the new ones.
func Newer(s *Store, adapter string) *Store {
	d := *current()
	d.layout, d.revision = layout+1, revision+1
	d.functions = nil
	next := strings.NewReplacer(fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1), fmt.Sprintf("_%d.", layout),
		fmt.Sprintf("_%d.", layout+1))
	for _, t := range current().functions {
		t.sql = next.Replace(t.sql)
		if from := strings.Index(t.sql, "create or replace function headgate.take("); from >= 0 {
			to := from + strings.Index(t.sql[from:], "end $$;\n") + len("end $$;\n")
			t.sql = t.sql[:from] + widerTake + t.sql[to:]
		}
		d.functions = append(d.functions, t)
	}
	d.articles.sql = next.Replace(d.articles.sql)
	d.rights.sql = next.Replace(d.rights.sql)
	d.adapter = text{"functions/previous.sql", adapter}
	return withDefinition(s, &d)
}

const widerTake = `create or replace function headgate.take(rule text, key text, amount numeric default 1)
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz, more int)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate_internal.find_2(rule);
    return query select d.*, 1 from headgate_internal.decide_2(1, f.name, f.c, key, amount) d;
end $$;
`

// Later returns the store of a later binary for which the rows have another meaning.
func Later(s *Store) *Store {
	d := *current()
	d.state, d.layout, d.revision = state+1, layout+1, revision+1
	d.functions = nil
	for _, t := range current().functions {
		t.sql = strings.ReplaceAll(strings.ReplaceAll(t.sql, fmt.Sprintf("_%d(", layout),
			fmt.Sprintf("_%d(", layout+1)), fmt.Sprintf("_%d.", layout), fmt.Sprintf("_%d.", layout+1))
		d.functions = append(d.functions, t)
	}
	d.articles.sql = strings.ReplaceAll(d.articles.sql, fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1))
	d.rights.sql = strings.ReplaceAll(d.rights.sql, fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1))
	return withDefinition(s, &d)
}

// Edited returns the store of a binary whose developer has changed a function without raising
// the revision.
func Edited(s *Store) *Store {
	d := *current()
	d.functions = append([]text{{
		"functions/edited.sql",
		"create or replace function headgate.edited() returns int language sql as 'select 1';",
	}}, d.functions...)
	return withDefinition(s, &d)
}

func withDefinition(s *Store, d *definition) *Store {
	s.def = d
	return s
}
