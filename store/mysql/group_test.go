package mysql_test

import (
	"context"
	"database/sql"
	stderrors "errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/storetest"
)

// inStep waits until all nodes have the schema and all earlier writes.
func inStep(t *testing.T, urls []string) {
	t.Helper()
	for _, url := range urls {
		db := pool(t, url, "group_replication_consistency=%27BEFORE%27")
		if _, err := db.ExecContext(t.Context(), "SELECT COUNT(*) FROM headgate_schema_version"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGroupReplicationConformance writes on two nodes of a multi-primary group at once, and on the one primary of the
// other kind of group. A transaction waits for earlier commits of other nodes, since the suite compares refusals bit by
// bit.
func TestGroupReplicationConformance(t *testing.T) {
	const inStep = "?group_replication_consistency=%27BEFORE%27"
	t.Run("multi-primary", func(t *testing.T) {
		g := dbtest.StartMySQLGroup(t, nil, false)
		storetest.Run(t, func(tb testing.TB) store.Store {
			urls := dbtest.MariaDBAt(tb, g.Servers()...)
			first := openAt(tb, urls[0]+inStep)
			return &twoWriters{Store: first, other: openAt(tb, urls[1]+inStep)}
		}, &storetest.Options{Histories: clusterHistories})
	})
	t.Run("single-primary", func(t *testing.T) {
		g := dbtest.StartMySQLGroup(t, nil, true)
		storetest.Run(t, func(tb testing.TB) store.Store {
			return openAt(tb, oneURL(dbtest.MariaDBAt(tb, g.Servers()...)))
		}, &storetest.Options{Histories: clusterHistories})
	})
}

// TestGroupReplicationTakesOneHotKeyOnAllNodes charges a key by three stores, each of which knows one node.
func TestGroupReplicationTakesOneHotKeyOnAllNodes(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	openAt(t, oneURL(urls))
	inStep(t, urls)
	limit := headgate.MustParse("token-bucket 1000/1h")
	var allowed atomic.Int64
	var retries atomic.Int64
	var wg sync.WaitGroup
	for _, url := range urls {
		wg.Go(func() {
			s, err := mysql.Open(context.Background(), url, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			l := limiter(s)
			for range 40 {
				d, err := l.Allow(context.Background(), limit, "hot")
				if err != nil {
					t.Error(err)
				}
				if d.Allowed {
					allowed.Add(1)
				}
			}
			retries.Add(s.Info().Retries)
		})
	}
	wg.Wait()
	t.Logf("%d of 120 allowed, %d repeated", allowed.Load(), retries.Load())
	if allowed.Load() != 120 {
		t.Errorf("%d of 120 allowed", allowed.Load())
	}
}

// TestGroupReplicationNodeIsKilled kills the node that writes a hot key: the charges must be those admitted, plus at
// most those of unknown outcome.
func TestGroupReplicationNodeIsKilled(t *testing.T) {
	for name, single := range map[string]bool{"multi-primary": false, "single-primary": true} {
		t.Run(name, func(t *testing.T) {
			g := dbtest.StartMySQLGroup(t, nil, single)
			urls := dbtest.MariaDBAt(t, g.Servers()...)
			killed := 0
			url := oneURL([]string{urls[1], urls[2], urls[0]}) // the primary is named last
			openAt(t, url)
			inStep(t, urls)
			// a thousandth of a request in a second
			ask := record.NewAsker(headgate.MustParse("token-bucket 1/1000s burst 100000"), "hot", history.Limit{
				Algorithm: history.TokenBucket, Amount: "1", Burst: "100000", Period: 1000 * time.Second.Microseconds(),
			})
			load := startPressure(t, 4, ask, url)
			await.Until(t, "100 admissions", func() bool { return load.passed() >= 100 })
			if !single {
				killed = writingNode(t, g)
			}
			ask.Recorder.Fault("db", history.Fault{Kind: history.Kill})
			g.Kill(killed)
			before := load.passed()
			await.Until(t, "200 admissions after the node was killed", func() bool { return load.passed() >= before+200 })
			load.end()
			s := openAt(t, url)
			used := load.checked(t, s).Used.String()
			t.Logf("node %d killed: %s charged, %+v", killed+1, used, &load.Answers)
			whole, _, part := strings.Cut(used, ".")
			charged, err := strconv.Atoi(whole)
			if err != nil {
				t.Fatal(err)
			}
			if part {
				charged++ // it drains a little
			}
			if charged < load.Allowed || charged > load.Allowed+load.Unknown {
				t.Errorf("%d charged for %d allowed and %d unknown", charged, load.Allowed, load.Unknown)
			}
		})
	}
}

// writingNode returns the node that clients have called most. A node counts what it takes over from others as commits
// of its own.
func writingNode(t *testing.T, g *dbtest.MySQLGroup) int {
	t.Helper()
	best, most := 0, -1
	for i, server := range g.Servers() {
		n, err := dbtest.MariaDBCount(server, "SHOW GLOBAL STATUS LIKE 'Questions'")
		if err != nil {
			t.Fatal(err)
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// passedBy returns the first number in the result of a call.
func passedBy(db *sql.DB, call string) (passed int, err error) {
	rows, err := db.QueryContext(context.Background(), call)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	values := []any{&passed, new(any), new(any), new(any), new(any), new(any), new(any)}
	if rows.Next() {
		err = rows.Scan(values[:len(columns)]...)
	}
	for err == nil && (rows.Next() || rows.NextResultSet()) {
		continue
	}
	if err == nil {
		err = rows.Err()
	}
	return passed, err
}

// TestGroupReplicationCalls calls for one key in sessions on all nodes: a call repeats itself after a conflict, and
// admissions must be exact. request_token has answered before its COMMIT, so there the caller gets the conflict.
func TestGroupReplicationCalls(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	openAt(t, oneURL(urls))
	if _, err := plainDB(t, urls[0]).ExecContext(t.Context(),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 70, 3600)"); err != nil {
		t.Fatal(err)
	}
	inStep(t, urls)
	for _, call := range []string{
		"CALL headgate_take('fixed-window 70/1d', 'hot', 1)",
		"CALL headgate_take_once(UUID(), 'fixed-window 70/1d', 'once', 1, 60)", "CALL request_token('b')",
	} {
		var mu sync.Mutex
		errors := map[uint16]int{}
		admitted := 0
		var wg sync.WaitGroup
		for _, url := range urls {
			db := plainDB(t, url)
			for range 2 {
				wg.Go(func() {
					for range 40 {
						passed, err := passedBy(db, call)
						mu.Lock()
						var my *driver.MySQLError
						switch {
						case stderrors.As(err, &my):
							errors[my.Number]++
						case err != nil:
							t.Error(err)
						default:
							admitted += passed
						}
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		t.Logf("%s: %d admitted, errors %v", call, admitted, errors)
		if admitted != 70 {
			t.Errorf("%s: %d were admitted, want 70", call, admitted)
		}
		if len(errors) > 0 && !strings.Contains(call, "request_token") {
			t.Errorf("%s: errors %v", call, errors)
		}
	}
}

// TestATransactionUndoneByTheGroupFails uses a transaction that was rolled back between two of its statements,
// in favour of another node's. MySQL reports that to the next statement that reads or writes (1213), unless a SAVEPOINT
// comes first: then the COMMIT would charge "b" here, and on all other nodes "a" as it was before the other charge.
func TestATransactionUndoneByTheGroupFails(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	db := pool(t, urls[0])
	there := openAt(t, oneURL(urls[1:2]))
	do := func(db *sql.DB, statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do(db, "CREATE TABLE orders (id int primary key, state int); INSERT INTO orders VALUES (1, 0)")
	inStep(t, urls)
	limit := headgate.MustParse("token-bucket 9/30d")
	take := func(ctx context.Context, s store.Store, keys ...string) error {
		charges := make([]headgate.Charge, len(keys))
		for i, key := range keys {
			charges[i] = headgate.Charge{Limit: limit, Key: key}
		}
		_, err := limiter(s).Take(ctx, charges...)
		return err
	}
	here := mysql.New(db, nil)
	if err := take(t.Context(), here, "c"); err != nil {
		t.Fatal(err)
	}
	ways := map[string]func(ctx context.Context, tx *sql.Tx, key string) error{
		"InTx": func(ctx context.Context, tx *sql.Tx, key string) error {
			return take(ctx, here.InTx(tx), key)
		},
		"headgate_take": func(ctx context.Context, tx *sql.Tx, key string) error {
			_, err := tx.ExecContext(ctx, "CALL headgate_take('"+limit.String()+"', '"+key+"', 1)")
			return err
		},
		"headgate_take_once": func(ctx context.Context, tx *sql.Tx, key string) error {
			_, err := tx.ExecContext(ctx, "CALL headgate_take_once('id', '"+limit.String()+"', '"+key+"', 1, 60)")
			return err
		},
	}
	for name, charge := range ways {
		for what, begin := range map[string]func(tx *sql.Tx) error{
			"a charge": func(tx *sql.Tx) error { return charge(t.Context(), tx, "a") },
			"an update": func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE orders SET state = state + 1 WHERE id = 1")
				return err
			},
		} {
			t.Run(name+" after "+what, func(t *testing.T) {
				if _, err := limiter(there).Reset(t.Context(), limit, "a"); err != nil {
					t.Fatal(err)
				}
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if err := begin(tx); err != nil {
					t.Fatal(err)
				}
				do(pool(t, urls[1]), "UPDATE orders SET state = state - 1")
				if err := take(t.Context(), there, "a", "b"); err != nil {
					t.Fatal(err)
				}
				inStep(t, urls) // that has come to this node
				err = charge(t.Context(), tx, "b")
				var my *driver.MySQLError
				if !stderrors.Is(err, store.ErrConflict) && (!stderrors.As(err, &my) || my.Number != 1213) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

// TestHalfABatchIsNotCommittedInAGroup lets a charge wait for too long: it must fail, and its transaction must charge
// nothing.
func TestHalfABatchIsNotCommittedInAGroup(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	url := dbtest.MariaDBAt(t, g.Servers()...)[0]
	s := openAt(t, url)
	db := pool(t, url)
	charges := []headgate.Charge{
		{Limit: headgate.MustParse("token-bucket 9/30d"), Key: "free"},
		{Limit: headgate.MustParse("fixed-window 9/30d"), Key: "held"},
	}
	holder, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback()
	if _, err := headgate.New(mysql.New(db, nil).InTx(holder), nil).Take(t.Context(), charges[1]); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "SET innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	in := headgate.New(mysql.New(db, nil).InTx(tx), nil)
	if _, err := in.Take(t.Context(), charges[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Take(t.Context(), charges...); !stderrors.Is(err, store.ErrConflict) {
		t.Errorf("got %v", err)
	}
	if tx.Commit() == nil {
		t.Error("the transaction was committed")
	}
	holder.Rollback()
	for _, c := range charges {
		if d, err := limiter(s).Check(t.Context(), c); err != nil || d.Remaining != 8 {
			t.Errorf("%s: %+v, %v", c.Key, d, err)
		}
	}
}
