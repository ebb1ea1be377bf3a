package mysql_test

import (
	"context"
	"database/sql"
	"errors"
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

// awaitWrites waits until each node has applied all earlier writes of the other nodes.
func awaitWrites(t *testing.T, urls []string) {
	t.Helper()
	for _, url := range urls {
		db := openMultiDB(t, url, "group_replication_consistency=%27BEFORE%27")
		mustExec(t, db, "SELECT COUNT(*) FROM headgate_schema_version")
	}
}

// TestGroupReplicationConformance runs the conformance suite over two nodes of a multi-primary group in turn, and over
// the primary of a single-primary group. In the first group transactions wait for earlier commits of other nodes, since
// the suite compares refusals bit by bit.
func TestGroupReplicationConformance(t *testing.T) {
	const consistentReads = "?group_replication_consistency=%27BEFORE%27"
	t.Run("multi-primary", func(t *testing.T) {
		g := dbtest.StartMySQLGroup(t, nil, false)
		storetest.Run(t, func(tb testing.TB) store.Store {
			urls := dbtest.MariaDBAt(tb, g.Servers()...)
			first := openAndMigrate(tb, urls[0]+consistentReads)
			return &alternatingStore{Store: first, second: openAndMigrate(tb, urls[1]+consistentReads)}
		}, &storetest.Options{Histories: clusterHistories})
	})
	t.Run("single-primary", func(t *testing.T) {
		g := dbtest.StartMySQLGroup(t, nil, true)
		storetest.Run(t, func(tb testing.TB) store.Store {
			return openAndMigrate(tb, joinURLs(dbtest.MariaDBAt(tb, g.Servers()...)))
		}, &storetest.Options{Histories: clusterHistories})
	})
}

// TestGroupReplicationAdmitsAHotKeyOnAllNodes checks that 40 charges of one key on each of three nodes are all
// admitted, without an error.
func TestGroupReplicationAdmitsAHotKeyOnAllNodes(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	openAndMigrate(t, joinURLs(urls))
	awaitWrites(t, urls)
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
			l := newLimiter(s)
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
	t.Logf("%d allowed, %d retries", allowed.Load(), retries.Load())
	if allowed.Load() != 120 {
		t.Errorf("got %d admissions, want 120", allowed.Load())
	}
}

// TestGroupReplicationNodeKilledUnderLoad checks that after the node that writes a hot key is killed, the key has all
// admitted charges, and beyond them at most the charges of unknown outcome.
func TestGroupReplicationNodeKilledUnderLoad(t *testing.T) {
	for name, singlePrimary := range map[string]bool{"multi-primary": false, "single-primary": true} {
		t.Run(name, func(t *testing.T) {
			g := dbtest.StartMySQLGroup(t, nil, singlePrimary)
			urls := dbtest.MariaDBAt(t, g.Servers()...)
			killed := 0                                          // the primary of a single-primary group
			url := joinURLs([]string{urls[1], urls[2], urls[0]}) // the primary is last
			openAndMigrate(t, url)
			awaitWrites(t, urls)
			// The bucket drains a thousandth of a request in a second.
			asker := record.NewAsker(headgate.MustParse("token-bucket 1/1000s burst 100000"), "hot", history.Limit{
				Algorithm: history.TokenBucket, Amount: "1", Burst: "100000", Period: 1000 * time.Second.Microseconds(),
			})
			load := startLoad(t, 4, asker, url)
			await.Until(t, "100 admissions", func() bool { return load.admissions() >= 100 })
			if !singlePrimary {
				killed = busiestGroupNode(t, g)
			}
			asker.Recorder.Fault("db", history.Fault{Kind: history.Kill})
			g.Kill(killed)
			before := load.admissions()
			await.Until(t, "200 admissions after the node was killed", func() bool { return load.admissions() >= before+200 })
			load.end()
			s := openAndMigrate(t, url)
			used := load.checkHistory(t, s).Used.String()
			t.Logf("node %d killed: %s charged, %+v", killed+1, used, &load.Answers)
			whole, _, hasFraction := strings.Cut(used, ".")
			charged, err := strconv.Atoi(whole)
			if err != nil {
				t.Fatal(err)
			}
			if hasFraction {
				charged++ // a part of a charge has drained
			}
			if charged < load.Allowed || charged > load.Allowed+load.Unknown {
				t.Errorf("got %d charged, want %d allowed and at most %d unknown", charged, load.Allowed, load.Unknown)
			}
		})
	}
}

// busiestGroupNode returns the index of the node that has answered most statements of clients. Commits would not tell,
// since a node also counts the commits that it applies for other nodes.
func busiestGroupNode(t *testing.T, g *dbtest.MySQLGroup) int {
	t.Helper()
	busiest, maxQuestions := 0, -1
	for i, server := range g.Servers() {
		n, err := dbtest.MariaDBCount(server, "SHOW GLOBAL STATUS LIKE 'Questions'")
		if err != nil {
			t.Fatal(err)
		}
		if n > maxQuestions {
			busiest, maxQuestions = i, n
		}
	}
	return busiest
}

// firstNumber returns the number in the first column of a call's first row: allowed or granted.
func firstNumber(db *sql.DB, call string) (number int, err error) {
	rows, err := db.QueryContext(context.Background(), call)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	values := []any{&number, new(any), new(any), new(any), new(any), new(any), new(any)}
	if rows.Next() {
		err = rows.Scan(values[:len(columns)]...)
	}
	for err == nil && (rows.Next() || rows.NextResultSet()) {
		continue
	}
	if err == nil {
		err = rows.Err()
	}
	return number, err
}

// TestGroupReplicationCallsAreExact checks that of 240 calls for one key, on all nodes, exactly 70 are admitted. A call
// repeats itself after a conflict, but request_token has answered before its COMMIT, so there the caller gets the
// error.
func TestGroupReplicationCallsAreExact(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	openAndMigrate(t, joinURLs(urls))
	if _, err := openPlainDB(t, urls[0]).ExecContext(t.Context(),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 70, 3600)"); err != nil {
		t.Fatal(err)
	}
	awaitWrites(t, urls)
	for _, call := range []string{
		"CALL headgate_take('fixed-window 70/1d', 'hot', 1)",
		"CALL headgate_take_once(UUID(), 'fixed-window 70/1d', 'once', 1, 60)", "CALL request_token('b')",
	} {
		var mu sync.Mutex
		errorCounts := map[uint16]int{} // by number
		admitted := 0
		var wg sync.WaitGroup
		for _, url := range urls {
			db := openPlainDB(t, url)
			for range 2 {
				wg.Go(func() {
					for range 40 {
						n, err := firstNumber(db, call)
						mu.Lock()
						var my *driver.MySQLError
						switch {
						case errors.As(err, &my):
							errorCounts[my.Number]++
						case err != nil:
							t.Error(err)
						default:
							admitted += n
						}
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		t.Logf("%s: %d admitted, errors %v", call, admitted, errorCounts)
		if admitted != 70 {
			t.Errorf("%s: got %d admissions, want 70", call, admitted)
		}
		if len(errorCounts) > 0 && !strings.Contains(call, "request_token") {
			t.Errorf("%s: got errors %v, want none", call, errorCounts)
		}
	}
}

// TestTransactionsRolledBackByTheGroupFail checks that a charge fails in a transaction that the group has rolled back
// between two statements, in favour of another node's. MySQL reports the rollback to the next statement that reads or
// writes (1213), unless a SAVEPOINT comes first: then the COMMIT would charge "b" here, and on all other nodes "a" as
// it was before the other charge.
func TestTransactionsRolledBackByTheGroupFail(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	urls := dbtest.MariaDBAt(t, g.Servers()...)
	db := openMultiDB(t, urls[0])
	otherStore := openAndMigrate(t, joinURLs(urls[1:2]))
	mustExec(t, db, "CREATE TABLE orders (id int primary key, state int); INSERT INTO orders VALUES (1, 0)")
	awaitWrites(t, urls)
	limit := headgate.MustParse("token-bucket 9/30d")
	take := func(ctx context.Context, s store.Store, keys ...string) error {
		charges := make([]headgate.Charge, len(keys))
		for i, key := range keys {
			charges[i] = headgate.Charge{Limit: limit, Key: key}
		}
		_, err := newLimiter(s).Take(ctx, charges...)
		return err
	}
	localStore := mysql.New(db, nil)
	if err := take(t.Context(), localStore, "c"); err != nil { // its first use examines the server
		t.Fatal(err)
	}
	charges := map[string]func(ctx context.Context, tx *sql.Tx, key string) error{
		"InTx": func(ctx context.Context, tx *sql.Tx, key string) error {
			return take(ctx, localStore.InTx(tx), key)
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
	for name, charge := range charges {
		for firstName, first := range map[string]func(tx *sql.Tx) error{
			"a charge": func(tx *sql.Tx) error { return charge(t.Context(), tx, "a") },
			"an update": func(tx *sql.Tx) error {
				_, err := tx.ExecContext(t.Context(), "UPDATE orders SET state = state + 1 WHERE id = 1")
				return err
			},
		} {
			t.Run(name+" after "+firstName, func(t *testing.T) {
				if _, err := newLimiter(otherStore).Reset(t.Context(), limit, "a"); err != nil {
					t.Fatal(err)
				}
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if err := first(tx); err != nil {
					t.Fatal(err)
				}
				mustExec(t, openMultiDB(t, urls[1]), "UPDATE orders SET state = state - 1")
				if err := take(t.Context(), otherStore, "a", "b"); err != nil {
					t.Fatal(err)
				}
				awaitWrites(t, urls) // the other node's writes have rolled tx back
				err = charge(t.Context(), tx, "b")
				var my *driver.MySQLError
				if !errors.Is(err, store.ErrConflict) && (!errors.As(err, &my) || my.Number != 1213) {
					t.Errorf("got %v, want ErrConflict or error 1213", err)
				}
			})
		}
	}
}

// TestInTxCommitsNoHalfBatchInAGroup checks that a batch of InTx that waits too long for a lock fails, and that its
// transaction commits what was charged before, and nothing of the batch.
func TestInTxCommitsNoHalfBatchInAGroup(t *testing.T) {
	g := dbtest.StartMySQLGroup(t, nil, false)
	url := dbtest.MariaDBAt(t, g.Servers()...)[0]
	s := openAndMigrate(t, url)
	db := openMultiDB(t, url)
	charges := []headgate.Charge{
		{Limit: headgate.MustParse("token-bucket 9/30d"), Key: "unlocked"},
		{Limit: headgate.MustParse("fixed-window 9/30d"), Key: "locked"},
	}
	for _, c := range charges { // a missing cell would be locked with its neighbours
		if _, err := newLimiter(s).Take(t.Context(), c); err != nil {
			t.Fatal(err)
		}
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
	mustExec(t, tx, "SET innodb_lock_wait_timeout = 1")
	inTx := headgate.New(mysql.New(db, nil).InTx(tx), nil)
	if _, err := inTx.Take(t.Context(), charges[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := inTx.Take(t.Context(), charges...); !errors.Is(err, store.ErrConflict) {
		t.Errorf("got %v, want ErrConflict", err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
	holder.Rollback()
	for i, c := range charges {
		if d, err := newLimiter(s).Check(t.Context(), c); err != nil || d.Remaining != int64(7+i) {
			t.Errorf("%s: got %+v, %v; want remaining %d", c.Key, d, err, 7+i)
		}
	}
}
