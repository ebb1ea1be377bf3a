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
	Fingerprint = postgresDefinition().fingerprint()
)

// ForYugabyte reports whether Migrate makes the tables of YugabyteDB on a server of this version.
func ForYugabyte(version string) bool {
	d := postgresDefinition().forServer(version)
	return d == yugabyteDefinition() && strings.Contains(d.tables[0].sql, "((limit_name, key) hash)")
}

// ExamineSessions runs the part of Examine about sessions. It reports the oldest idle transaction older than maxIdle.
func ExamineSessions(ctx context.Context, s *Store, maxIdle time.Duration) (findings store.Findings, err error) {
	err = s.examineSessionsIdle(ctx, &findings, maxIdle)
	return findings, err
}

// WithNextLayout makes s the store of a newer binary, and returns s. The functions have the next layout, and take has
// one more column. adapter is the SQL of functions of this layout, which call the new functions.
func WithNextLayout(s *Store, adapter string) *Store {
	d := *postgresDefinition()
	d.layout, d.revision = layout+1, revision+1
	d.functions = nil
	toNextLayout := strings.NewReplacer(fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1),
		fmt.Sprintf("_%d.", layout), fmt.Sprintf("_%d.", layout+1))
	for _, t := range postgresDefinition().functions {
		t.sql = toNextLayout.Replace(t.sql)
		if start := strings.Index(t.sql, "create or replace function headgate.take("); start >= 0 {
			end := start + strings.Index(t.sql[start:], "end $$;\n") + len("end $$;\n")
			t.sql = t.sql[:start] + widerTake + t.sql[end:]
		}
		d.functions = append(d.functions, t)
	}
	d.articles.sql = toNextLayout.Replace(d.articles.sql)
	d.rights.sql = toNextLayout.Replace(d.rights.sql)
	d.adapter = text{"functions/previous.sql", adapter}
	return withDefinition(s, &d)
}

// widerTake is headgate.take of layout 3, with the additional column more.
const widerTake = `create or replace function headgate.take(rule text, key text, amount numeric default 1)
returns table (allowed boolean, remaining bigint, retry_after interval, reset_after interval, limit_name text, at timestamptz, more int)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
    f record;
begin
    select * into f from headgate_internal.find_3(rule);
    return query select d.*, 1 from headgate_internal.decide_3(1, f.name, f.c, key, amount) d;
end $$;
`

// WithNextState makes s the store of a newer binary, and returns s. To it, rows of the tables have another meaning.
func WithNextState(s *Store) *Store {
	d := *postgresDefinition()
	d.state, d.layout, d.revision = state+1, layout+1, revision+1
	d.functions = nil
	for _, t := range postgresDefinition().functions {
		t.sql = strings.ReplaceAll(strings.ReplaceAll(t.sql, fmt.Sprintf("_%d(", layout),
			fmt.Sprintf("_%d(", layout+1)), fmt.Sprintf("_%d.", layout), fmt.Sprintf("_%d.", layout+1))
		d.functions = append(d.functions, t)
	}
	d.articles.sql = strings.ReplaceAll(d.articles.sql, fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1))
	d.rights.sql = strings.ReplaceAll(d.rights.sql, fmt.Sprintf("_%d(", layout), fmt.Sprintf("_%d(", layout+1))
	return withDefinition(s, &d)
}

// WithEditedFunctions makes s the store of a binary with an added function and the same revision, and returns s.
func WithEditedFunctions(s *Store) *Store {
	d := *postgresDefinition()
	d.functions = append([]text{{
		"functions/edited.sql",
		"create or replace function headgate.edited() returns int language sql as 'select 1';",
	}}, d.functions...)
	return withDefinition(s, &d)
}

// withDefinition sets the definition of s, and returns s.
func withDefinition(s *Store, d *definition) *Store {
	s.def = d
	return s
}
