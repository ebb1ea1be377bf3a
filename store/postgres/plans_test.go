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

// planNode is a node of a query plan in the JSON of auto_explain.
type planNode struct {
	Type        string     `json:"Node Type"`
	Table       string     `json:"Relation Name"`
	Index       string     `json:"Index Name"`
	IndexCond   string     `json:"Index Cond"`
	TidCond     string     `json:"TID Cond"`
	Rows        float64    `json:"Actual Rows"`
	Loops       float64    `json:"Actual Loops"`
	FilterDrops float64    `json:"Rows Removed by Filter"`
	JoinDrops   float64    `json:"Rows Removed by Join Filter"`
	Children    []planNode `json:"Plans"`
}

// planWatcher is a pool of one session that collects its query plans, also those of statements inside functions.
type planWatcher struct {
	*pgxpool.Pool
	mu    sync.Mutex
	plans []string
}

// watchPlans returns a planWatcher, whose session loads auto_explain.
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

// indexColumns are the sets of index columns by which a statement may reach the rows of a table.
var indexColumns = map[string][][]string{
	"cells":      {{"limit_name", "key"}, {"ROW(limit_name, key)"}},
	"entries":    {{"limit_name", "key"}, {"number"}},
	"admissions": {{"id"}, {"keep_until"}},
}

// check fails the test for each scan of a table of indexColumns without an index, and for each node that read more than
// maxRows rows in a loop, or whose join dropped more in all loops. It forgets the plans.
func (w *planWatcher) check(t *testing.T, operation string, maxRows float64) {
	t.Helper()
	w.mu.Lock()
	plans := w.plans
	w.plans = nil
	w.mu.Unlock()
	if len(plans) == 0 {
		t.Errorf("%s: got no plan, want at least one", operation)
	}
	for _, text := range plans {
		var p struct {
			Query string `json:"Query Text"`
			Plan  planNode
		}
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			t.Fatalf("%s: %v: %s", operation, err, text)
		}
		for _, problem := range scanProblems(&p.Plan, maxRows) {
			t.Errorf("%s: %s in\n%s\n%s", operation, problem, p.Query, text)
		}
	}
}

// scanProblems describes the scans of a plan that check must report.
func scanProblems(n *planNode, maxRows float64) (problems []string) {
	isScan := strings.HasSuffix(n.Type, "Scan") && n.Type != "Bitmap Heap Scan" && n.Type != "Subquery Scan"
	table := n.Table
	if n.Type == "Bitmap Index Scan" {
		table, _, _ = strings.Cut(strings.TrimSuffix(n.Index, "_pkey"), "_by_")
	}
	if columnSets := indexColumns[table]; isScan && columnSets != nil && n.TidCond == "" {
		usesIndex := false
		for _, columns := range columnSets {
			hasAllColumns := true
			for _, column := range columns {
				hasAllColumns = hasAllColumns && strings.Contains(n.IndexCond, column)
			}
			usesIndex = usesIndex || hasAllColumns
		}
		if !usesIndex {
			problems = append(problems, fmt.Sprintf("%s of %s by %q", n.Type, table, n.IndexCond))
		}
	}
	if rows := n.Rows + n.FilterDrops + n.JoinDrops; n.Table != "" && rows > maxRows || n.JoinDrops*n.Loops > maxRows {
		problems = append(problems, fmt.Sprintf("%s %s: %v rows in each of %v loops, of which the join drops %v",
			n.Type, n.Table, rows, n.Loops, n.JoinDrops))
	}
	for i := range n.Children {
		problems = append(problems, scanProblems(&n.Children[i], maxRows)...)
	}
	return problems
}

// TestHotStatementsReachRowsByTheirKey checks the plans of frequent statements. They are made while the tables are
// empty, with or without statistics, and stay cached when the tables have 3000 rows.
func TestHotStatementsReachRowsByTheirKey(t *testing.T) {
	t.Parallel()
	setups := map[string]string{
		"never analysed": "select 1",
		"analysed empty": "analyze headgate.cells, headgate.entries, headgate.admissions",
		"emptied": rowInserts(1, 3000) +
			`delete from headgate.cells; delete from headgate.entries; delete from headgate.admissions`,
	}
	if tier.Current() == tier.OfTest {
		delete(setups, "analysed empty")
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) { checkPlansAfter(t, migrated.Postgres(t), setup) })
	}
}

// rowInserts returns statements that insert a row for each number into the tables of indexColumns. One in 100 is dead.
func rowInserts(first, last int) string {
	return fmt.Sprintf(`insert into headgate.cells (limit_name, key, law, unit, empty_at, blocked_until)
		select 'many', n::text, 3, 1000, case when n %% 100 = 0 then 0 else 9007199254740991 end, 0 from generate_series(%[1]d, %[2]d) n;
		insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
		select 'many', n::text, 1, case when n %% 100 = 0 then 0 else 9007199254740991 end, case when n %% 100 = 0 then 0 else 9007199254740991 end, 1, true from generate_series(%[1]d, %[2]d) n;
		insert into headgate.admissions (id, home, keep_until, cells, prints, keeps, costs, settled, rules, outcomes)
		select n::text, n, case when n %% 100 = 0 then 0 else 9007199254740991 end, array[n], '{1}', '{9007199254740991}', '{1}', '{-1}', '{{1}}', '{{1}}' from generate_series(%[1]d, %[2]d) n;`, first, last)
}

// checkPlansAfter executes the setup, and checks the plans of the hot statements before and after the tables get rows.
func checkPlansAfter(t *testing.T, dsn, setup string) {
	openAt(t, dsn)
	conn := connect(t, dsn)
	run := func(sql string) {
		t.Helper()
		for _, statement := range strings.Split(sql, ";") {
			mustExec(t, conn, statement)
		}
	}
	run(setup)
	if strings.Contains(setup, "delete") {
		// The snapshot of another session may keep dead rows for a while.
		await.NoError(t, "empty tables", func() error {
			var bytes int
			run(`vacuum (analyze, truncate) headgate.cells; vacuum (analyze, truncate) headgate.entries; vacuum (analyze, truncate) headgate.admissions`)
			err := conn.QueryRow(t.Context(),
				`select pg_relation_size('headgate.cells') + pg_relation_size('headgate.entries') + pg_relation_size('headgate.admissions')`).Scan(&bytes)
			if err == nil && bytes > 0 {
				err = fmt.Errorf("the tables still have %d bytes", bytes)
			}
			return err
		})
	}
	w := watchPlans(t, dsn)
	s := postgres.New(w.Pool, nil)
	runHotStatements(t, w, s, 1)
	run(rowInserts(1, 3000))
	runHotStatements(t, w, s, 1000)
	renewAndReturn(t, w, s, conn)
}

// renewAndReturn renews and returns a charge of a key with many entries, and checks the plans.
func renewAndReturn(t *testing.T, w *planWatcher, s *postgres.Store, conn *pgx.Conn) {
	t.Helper()
	var lastNumber int64
	if err := conn.QueryRow(t.Context(), `with made as (insert into headgate.entries (limit_name, key, at, expires_at, keep_until, cost, granted)
		select 'many', '2000', 1, 9007199254740991, 9007199254740991, 1000, true from generate_series(1, 500) returning number)
		select max(number) from made`).Scan(&lastNumber); err != nil {
		t.Fatal(err)
	}
	op := law.Op{
		Cell: law.Cell{Limit: "many", Key: "2000"}, Cost: 1000, Count: 1, EntryNumber: lastNumber,
		Params: law.Params{Kind: law.Log, Unit: 1000, Capacity: 1_000_000, Step: 60_000_000},
	}
	for _, verb := range []law.Verb{law.Renew, law.Return} {
		op.Verb = verb
		applyOp(t, s, op)
		w.check(t, fmt.Sprintf("verb %d of an entry among many", verb), 60) // the key has 500 entries
	}
}

// runHotStatements executes the frequent statements on 20 keys, from the number firstKey on, and checks their plans.
func runHotStatements(t *testing.T, w *planWatcher, s *postgres.Store, firstKey int) {
	t.Helper()
	const keys, maxRows = 20, 60
	apply := func(operation string, groupSize uint32, op law.Op) {
		t.Helper()
		op.Cost, op.TTL = cmp.Or(op.Cost, 1000), 3_600_000_000
		ops, outs := make([]law.Op, keys), make([]law.Outcome, keys)
		id := op.ID
		for i := range ops {
			op.Cell, op.Group = law.Cell{Limit: "many", Key: fmt.Sprint(firstKey + i)}, uint32(i)/groupSize
			if id != "" {
				op.ID = fmt.Sprint(id, firstKey, uint32(i)/groupSize)
			}
			ops[i] = op
		}
		if err := s.Apply(t.Context(), ops, outs); err != nil {
			t.Fatalf("%s: %v", operation, err)
		}
		for i := range outs {
			if outs[i].Err != nil {
				t.Errorf("%s: %v", operation, outs[i].Err)
			}
		}
		w.check(t, operation, maxRows)
	}
	bucketParams := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 3_600_000, Step: 1000, Drain: 1000}
	logParams := law.Params{Kind: law.Log, Unit: 1000, Capacity: 5000, Step: 60_000_000, History: 60_000_000}
	for _, params := range []law.Params{logParams, bucketParams} {
		for i := range 3 {
			apply("take alone", 1, law.Op{Verb: law.Take, Params: params, Count: 1})
			apply("take in groups", 2, law.Op{Verb: law.Take, Params: params, Count: 1 + int64(i)*9})
		}
		apply("take by id", 2, law.Op{Verb: law.Take, Params: params, Count: 1, ID: "id"})
		apply("extend", 2, law.Op{Verb: law.Extend, Params: params, Count: 1, Cost: 2000, ID: "id"})
		apply("settle", 2, law.Op{Verb: law.Settle, Params: params, Count: 1, ID: "id"})
		apply("check", 1, law.Op{Verb: law.Check, Params: params, Count: 1})
		apply("return", 1, law.Op{Verb: law.Return, Params: params, Count: 1, EntryNumber: int64(firstKey)})
		if params.Kind == law.Log {
			apply("renew", 1, law.Op{Verb: law.Renew, Params: params, Count: 1, EntryNumber: int64(firstKey)})
		}
		apply("block", 1, law.Op{Verb: law.Block, Params: params, Count: 1})
		apply("reset", 1, law.Op{Verb: law.Reset, Params: params, Count: 1})
	}
	for range 3 {
		if _, err := s.Sweep(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		w.check(t, "sweep", maxRows)
	}
	mustExec(t, w, `select * from headgate.attempts('many', $1, 5)`, fmt.Sprint(firstKey))
	w.check(t, "attempts", maxRows)
}
