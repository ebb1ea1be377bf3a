package postgres_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/law"
)

// toStateOne makes a database of what this binary has made as the binaries of state 1 have left theirs, which
// kept a row for each cell of a request. Its rows are of one cell.
const toStateOne = `
create table headgate.old (
    limit_name text collate "C" not null, key text collate "C" not null, id text collate "C" not null,
    print bigint not null, rule bigint[] not null, cost bigint not null, outcome bigint[] not null,
    settled bigint not null, keep_until bigint not null,
    primary key (limit_name, key, id));
insert into headgate.old
select c.limit_name, c.key, a.id, a.prints[1], array(select unnest(a.rules[1:1])), a.costs[1],
    array[a.outcomes[1][1], a.rules[1][1], a.outcomes[1][2], a.outcomes[1][3], a.outcomes[1][4], a.rules[1][3],
        a.outcomes[1][5], a.outcomes[1][6], a.outcomes[1][7], 0, 0, a.outcomes[1][8], 0, a.outcomes[1][9],
        a.rules[1][5]] ||
        array(select unnest(a.extensions[1:1])),
    a.settled[1], a.keep_until
from headgate.admissions a join headgate.cells c on c.generation = a.cells[1];
drop table headgate.admissions;
alter table headgate.old rename to admissions;
alter index headgate.old_pkey rename to admissions_pkey;
create index admissions_by_time on headgate.admissions (keep_until);
alter table headgate.cells drop column generation, drop column ids_until;
update headgate.installed set state = 1, fingerprint = '';
delete from headgate.schema_version where version >= 3;`

// TestIDsOutliveTheirConversion compares a database that binaries of state 1 have left with one that was never theirs.
func TestIDsOutliveTheirConversion(t *testing.T) {
	t.Parallel()
	op := func(verb law.Verb, id string, cost int64) law.Op {
		op := request(id, 3_600_000_000)
		if op.Verb, op.Cost = verb, cost; verb == law.Settle {
			op.TTL = 0
		}
		return op
	}
	answers := func(convert bool) (list []law.Outcome) {
		dsn := migrated.Postgres(t)
		before := openAt(t, dsn)
		for _, o := range []law.Op{
			op(law.Take, "open", 3000), op(law.Take, "settled", 3000), op(law.Take, "cancelled", 1000),
			op(law.Settle, "cancelled", law.Cancelled), op(law.Settle, "settled", 1000),
			op(law.Take, "extended", 1000), op(law.Extend, "extended", 3000),
		} {
			one(t, before, o)
		}
		before.Close()
		if convert {
			execute(t, dsn, toStateOne)
		}
		s := openAt(t, dsn)
		for _, o := range []law.Op{
			op(law.Take, "open", 3000), op(law.Take, "settled", 3000), op(law.Settle, "settled", 1000),
			op(law.Settle, "settled", 2000), op(law.Take, "extended", 1000), op(law.Settle, "extended", 0),
			op(law.Settle, "open", 1000), op(law.Take, "cancelled", 1000),
		} {
			outs := make([]law.Outcome, 1)
			if err := s.Apply(t.Context(), []law.Op{o}, outs); err != nil {
				t.Fatal(err)
			}
			list = append(list, outs[0])
		}
		return list
	}
	want, got := answers(false), answers(true)
	replayed := 0
	for i, w := range want {
		g := got[i]
		if g.Granted != w.Granted || g.Used != w.Used || g.Replayed != w.Replayed || !errors.Is(g.Err, w.Err) {
			t.Errorf("answer %d:\n got %+v\nwant %+v", i, g, w)
		}
		if w.Replayed {
			replayed++
		}
	}
	if replayed != 4 {
		t.Errorf("%d answers were repeated, want 4: %+v", replayed, want)
	}
}
