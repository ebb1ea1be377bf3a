package postgres_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/postgres"
)

// node is a node of a plan as auto_explain writes it.
type node struct {
	Type    string  `json:"Node Type"`
	Table   string  `json:"Relation Name"`
	Index   string  `json:"Index Name"`
	Cond    string  `json:"Index Cond"`
	TidCond string  `json:"TID Cond"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Filter  float64 `json:"Rows Removed by Filter"`
	Join    float64 `json:"Rows Removed by Join Filter"`
	Plans   []node  `json:"Plans"`
}

// planWatcher is a session whose query plans are collected, also the plans of statements inside
// functions.
type planWatcher struct {
	*pgxpool.Pool
	mu    sync.Mutex
	plans []string
}

// watchPlans returns a pool of one session with auto_explain.
func watchPlans(t *testing.T, dsn string) *planWatcher {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn + "?pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	w := &planWatcher{}
	cfg.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if _, plan, ok := strings.Cut(n.Message, "plan:\n"); ok {
			w.mu.Lock()
			w.plans = append(w.plans, plan)
			w.mu.Unlock()
		}
	}
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_nested_statements = on;
			set auto_explain.log_analyze = on; set auto_explain.log_format = json; set auto_explain.log_level = notice`)
		return err
	}
	if w.Pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// indexColumns are the index columns by which a statement may reach the rows of a table.
var indexColumns = map[string][][]string{
	"cells":      {{"limit_name", "key"}, {"ROW(limit_name, key)"}},
	"entries":    {{"limit_name", "key"}, {"number"}},
	"admissions": {{"id"}, {"keep_until"}},
}

// check reports every scan of Headgate's tables that uses no index, and every scan that has read more
// than most rows in a loop.
func (w *planWatcher) check(t *testing.T, doing string, most float64) {
	t.Helper()
	w.mu.Lock()
	plans := w.plans
	w.plans = nil
	w.mu.Unlock()
	if len(plans) == 0 {
		t.Errorf("%s: no plan was seen", doing)
	}
	for _, text := range plans {
		var p struct {
			Query string `json:"Query Text"`
			Plan  node
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v: %s", doing, err, text)
		}
		for _, fault := range scanFaults(&p.Plan, most) {
			t.Errorf("%s: %s in\n%s\n%s", doing, fault, p.Query, text)
		}
	}
}

func scanFaults(n *node, most float64) (list []string) {
	scans := strings.HasSuffix(n.Type, "Scan") && n.Type != "Bitmap Heap Scan" && n.Type != "Subquery Scan"
	table := n.Table
	if n.Type == "Bitmap Index Scan" {
		table, _, _ = strings.Cut(strings.TrimSuffix(n.Index, "_pkey"), "_by_")
	}
	if ways := indexColumns[table]; scans && ways != nil && n.TidCond == "" {
		ok := false
		for _, way := range ways {
			all := true
			for _, column := range way {
				all = all && strings.Contains(n.Cond, column)
			}
			ok = ok || all
		}
		if !ok {
			list = append(list, fmt.Sprintf("%s of %s by %q", n.Type, table, n.Cond))
		}
	}
	if got := n.Rows + n.Filter + n.Join; n.Table != "" && got > most || n.Join*n.Loops > most {
		list = append(list, fmt.Sprintf("%s %s: %v rows in each of %v loops, %v joined in vain", n.Type, n.Table, got,
			n.Loops, n.Join))
	}
	for i := range n.Plans {
		list = append(list, scanFaults(&n.Plans[i], most)...)
	}
	return list
}

// TestEveryHotStatementReachesItsRowsByTheirKey checks the plans of all statements of decisions and
// sweeps, on tables that are empty by the statistics: at once, and with the same cached plans after the
// tables have filled up again.
func TestEveryHotStatementReachesItsRowsByTheirKey(t *testing.T) {
	t.Parallel()
	states := map[string]string{
		"never analysed": "select 1",
		"analysed empty": "analyze headgate.cells, headgate.entries, headgate.admissions",
		"emptied": fill(1, 3000) +
			`delete from headgate.cells; delete from headgate.entries; delete from headgate.admissions`,
	}
	if tier.Current() == tier.OfTest {
		delete(states, "analysed empty")
	}
	for name, before := range states {
		t.Run(name, func(t *testing.T) { emptyTables(t, migrated.Postgres(t), before) })
	}
}

// fill returns statements that insert rows. A sweep removes some of the rows.
func fill(from, to int) string {
	return fmt.Sprintf(`insert into headgate.cells (limit_name, key, law, unit, empty_at, blocked_until)
		select 'many', n::text, 3, 1000, case when n %% 100 = 0 then 0 else 9007199254740991 end, 0 from generate_series(%[1]d, %[2]d) n;
		insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
		select 'many', n::text, 1, case when n %% 100 = 0 then 0 else 9007199254740991 end, case when n %% 100 = 0 then 0 else 9007199254740991 end, 1, true from generate_series(%[1]d, %[2]d) n;
		insert into headgate.admissions (id, home, keep_until, cells, prints, keeps, costs, settled, rules, outcomes)
		select n::text, n, case when n %% 100 = 0 then 0 else 9007199254740991 end, array[n], '{1}', '{9007199254740991}', '{1}', '{-1}', '{{1}}', '{{1}}' from generate_series(%[1]d, %[2]d) n;`, from, to)
}

func emptyTables(t *testing.T, dsn, before string) {
	openAt(t, dsn)
	conn := connect(t, dsn)
	run := func(sql string) {
		t.Helper()
		for _, statement := range strings.Split(sql, ";") {
			if _, err := conn.Exec(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(before)
	if strings.Contains(before, "delete") {
		// The snapshot of another session may keep dead rows.
		await.NoError(t, "empty tables", func() error {
			var pages int
			run(`vacuum (analyze, truncate) headgate.cells; vacuum (analyze, truncate) headgate.entries; vacuum (analyze, truncate) headgate.admissions`)
			err := conn.QueryRow(t.Context(),
				`select pg_relation_size('headgate.cells') + pg_relation_size('headgate.entries') + pg_relation_size('headgate.admissions')`).Scan(&pages)
			if err == nil && pages > 0 {
				err = fmt.Errorf("the tables still have %d bytes", pages)
			}
			return err
		})
	}
	w := watchPlans(t, dsn)
	s := postgres.New(w.Pool, nil)
	runHotStatements(t, w, s, 1)
	run(fill(1, 3000))
	runHotStatements(t, w, s, 1000)
	giveBackAndRenew(t, w, s, conn)
}

// giveBackAndRenew gives back and renews charges of a key with many entries.
func giveBackAndRenew(t *testing.T, w *planWatcher, s *postgres.Store, conn *pgx.Conn) {
	t.Helper()
	var last int64
	if err := conn.QueryRow(t.Context(), `with made as (insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
		select 'many', '2000', 1, 9007199254740991, 9007199254740991, 1000, true from generate_series(1, 500) returning number)
		select max(number) from made`).Scan(&last); err != nil {
		t.Fatal(err)
	}
	op := law.Op{
		Cell: law.Cell{Limit: "many", Key: "2000"}, Cost: 1000, Count: 1, EntryNumber: last,
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 1_000_000, Step: 60_000_000},
	}
	for _, verb := range []law.Verb{law.Renew, law.Return} {
		op.Verb = verb
		applyOp(t, s, op)
		w.check(t, fmt.Sprintf("verb %d of an entry among many", verb), 60)
	}
}

// runHotStatements executes the frequent statements once, on 20 keys from number from on.
func runHotStatements(t *testing.T, w *planWatcher, s *postgres.Store, from int) {
	t.Helper()
	const n, most = 20, 60
	apply := func(doing string, group uint32, op law.Op) {
		t.Helper()
		op.Cost, op.TTL = cmp.Or(op.Cost, 1000), 3_600_000_000
		ops, outs := make([]law.Op, n), make([]law.Outcome, n)
		id := op.ID
		for i := range ops {
			op.Cell, op.Group = law.Cell{Limit: "many", Key: fmt.Sprint(from + i)}, uint32(i)/group
			if id != "" {
				op.ID = fmt.Sprint(id, from, uint32(i)/group)
			}
			ops[i] = op
		}
		if err := s.Apply(t.Context(), ops, outs); err != nil {
			t.Fatalf("%s: %v", doing, err)
		}
		for i := range outs {
			if outs[i].Err != nil {
				t.Errorf("%s: %v", doing, outs[i].Err)
			}
		}
		w.check(t, doing, most)
	}
	bucket := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3_600_000, Step: 1000, Drain: 1000}
	log := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000}
	for _, p := range []law.Params{log, bucket} {
		for i := range 3 {
			apply("take alone", 1, law.Op{Verb: law.Take, Params: p, Count: 1})
			apply("take in groups", 2, law.Op{Verb: law.Take, Params: p, Count: 1 + int64(i)*9})
		}
		apply("take by id", 2, law.Op{Verb: law.Take, Params: p, Count: 1, ID: "id"})
		apply("extend", 2, law.Op{Verb: law.Extend, Params: p, Count: 1, Cost: 2000, ID: "id"})
		apply("settle", 2, law.Op{Verb: law.Settle, Params: p, Count: 1, ID: "id"})
		apply("check", 1, law.Op{Verb: law.Check, Params: p, Count: 1})
		apply("return", 1, law.Op{Verb: law.Return, Params: p, Count: 1, EntryNumber: int64(from)})
		if p.Kind == law.Log {
			apply("renew", 1, law.Op{Verb: law.Renew, Params: p, Count: 1, EntryNumber: int64(from)})
		}
		apply("block", 1, law.Op{Verb: law.Block, Params: p, Count: 1})
		apply("reset", 1, law.Op{Verb: law.Reset, Params: p, Count: 1})
	}
	for range 3 {
		if _, err := s.Sweep(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		w.check(t, "sweep", most)
	}
	if _, err := w.Exec(t.Context(), `select * from headgate.attempts('many', $1, 5)`, fmt.Sprint(from)); err != nil {
		t.Fatal(err)
	}
	w.check(t, "attempts", most)
}
