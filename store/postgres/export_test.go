package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/store"
)

// Revision and Fingerprint are those of this binary's functions.
var (
	Revision    = revision
	Fingerprint = current().fingerprint()
)

// ForYugabyte reports whether Migrate makes the tables of YugabyteDB on a server that says
// this of its version.
func ForYugabyte(version string) bool {
	d := current().on(version)
	return d == yugabyte() && strings.Contains(d.tables[0].sql, "((limit_name, key) hash)")
}

// ExamineSessions is the part of Examine that looks at sessions, with another age of transactions that are idle.
func ExamineSessions(ctx context.Context, s *Store, idle time.Duration) (f store.Findings, err error) {
	err = s.examineSessionsIdle(ctx, &f, idle)
	return f, err
}

// Newer returns a store as a binary of a later revision has it: its functions have the
// next layout, take has one more column, and those of this layout call the new ones.
// adapter is the text of the latter.
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
	return as(s, &d)
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

// Later returns a store as a binary has it to which the rows mean something else.
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
	return as(s, &d)
}

// Edited returns a store as a binary has it whose developer changed a function and did
// not raise the revision.
func Edited(s *Store) *Store {
	d := *current()
	d.functions = append([]text{{
		"functions/edited.sql",
		"create or replace function headgate.edited() returns int language sql as 'select 1';",
	}}, d.functions...)
	return as(s, &d)
}

func as(s *Store, d *definition) *Store {
	s.def = d
	return s
}
