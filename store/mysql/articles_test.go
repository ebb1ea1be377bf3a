package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/mysql"
)

// tokenRequester requests tokens as the Go client of the article on token buckets does: it calls Exec, and takes the
// number of affected rows for the answer.
type tokenRequester struct {
	db     *sql.DB
	bucket string
}

var errNoToken = errors.New("no token available")

func (r *tokenRequester) RequestToken(ctx context.Context) error {
	result, err := r.db.ExecContext(ctx, "CALL request_token(?);", r.bucket)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows <= 0 {
		return errNoToken
	} else if rows > 1 {
		return errors.New("more than one row")
	}
	return nil
}

// limitAction returns the article's wrapper around an action that is limited.
func limitAction(r *tokenRequester, action func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := r.RequestToken(ctx); err != nil {
			return err
		}
		return action(ctx)
	}
}

// needsRepreparation is the error of a prepared statement whose tables have left MySQL's cache of definitions
// again and again, as they may while tests make many databases. The statement was not executed.
const needsRepreparation = 1615

// TestTheArticlesClientGetsTheTokensOfItsBucket checks that the article's client gets 5 tokens of 20 requests in each
// of three periods, over connections with several options.
func TestTheArticlesClientGetsTheTokensOfItsBucket(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	admin := openPlainDB(t, url)
	for _, options := range []string{"", "multiStatements=true", "interpolateParams=true", "clientFoundRows=true"} {
		t.Run(options, func(t *testing.T) {
			mustExec(t, admin, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b"+options+"', 5, 3600)")
			var passed, refused atomic.Int64
			call := limitAction(&tokenRequester{openPlainDB(t, url, options), "b" + options}, func(context.Context) error {
				passed.Add(1)
				return nil
			})
			for period := range int64(3) {
				if period > 0 {
					elapse(t, admin, "b"+options, time.Hour)
				}
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						for requests := 0; requests < 5; {
							err := call(t.Context())
							if errorNumber(err) == needsRepreparation {
								continue
							}
							if requests++; errors.Is(err, errNoToken) {
								refused.Add(1)
							} else if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				if passed.Load() != 5*(period+1) || refused.Load() != 15*(period+1) {
					t.Errorf("got %d passed and %d refused in %d periods, want 5 and 15 in each", passed.Load(),
						refused.Load(), period+1)
				}
			}
		})
	}
}

// elapse simulates that time passes for the cell of a key: it moves the cell's times at and empty_at back.
func elapse(t *testing.T, db *sql.DB, key string, by time.Duration) {
	t.Helper()
	us := by.Microseconds()
	mustExec(t, db, fmt.Sprintf("UPDATE headgate_cells SET at = at - %d, empty_at = empty_at - %d WHERE cell_key = '%s'",
		us, us, key))
}

// TestRequestTokenCountsInsideATransaction checks that request_token in a transaction returns one affected row for a
// token whatever the transaction has changed before, and commits nothing.
func TestRequestTokenCountsInsideATransaction(t *testing.T) {
	t.Parallel()
	db, _ := openDBAndStore(t)
	mustExec(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 2, 3600)")
	createTable(t, db, "orders", "id int primary key")
	for round, want := range [][]int64{{1, 1, 0}, {1, 1, 0}, {1}, {1, 0}} { // only the third is committed
		tx := beginTx(t, db)
		mustExec(t, tx, "INSERT INTO orders VALUES (1), (2)")
		for i, n := range want {
			result, err := tx.ExecContext(t.Context(), "CALL request_token('b')")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := result.RowsAffected(); err != nil || got != n {
				t.Errorf("round %d, call %d: got %d rows, %v; want %d", round, i, got, err, n)
			}
		}
		if round == 2 {
			mustExec(t, tx, "DELETE FROM orders")
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	var orders int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders); err != nil || orders != 0 {
		t.Errorf("got %d orders after the rollback, %v; want none", orders, err)
	}
}

// TestRequestTokenIsExactForNewBuckets checks that concurrent first calls for four buckets of capacity 3 get 3 tokens
// of each bucket, beside sweeps.
func TestRequestTokenIsExactForNewBuckets(t *testing.T) {
	t.Parallel()
	db, s := openDBAndStore(t)
	mustExec(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('a', 3, 3600), ('b', 3, 3600), "+
		"('c', 3, 3600), ('d', 3, 3600)")
	var passed [4]atomic.Int64
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			r := tokenRequester{db, string(rune('a' + i%4))}
			switch err := r.RequestToken(t.Context()); {
			case err == nil:
				passed[i%4].Add(1)
			case !errors.Is(err, errNoToken):
				t.Error(err)
			}
			if i%7 == 0 { // a sweep must remove no cell that counts
				if _, err := s.Sweep(t.Context(), 100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range passed {
		if n := passed[i].Load(); n != 3 {
			t.Errorf("bucket %d: got %d tokens, want 3", i, n)
		}
	}
}

// TestRequestTokenRepeatsAfterARaceForItsCell checks that request_token gives one token and one answer if another
// session makes the bucket's cell between the call's read and its write.
func TestRequestTokenRepeatsAfterARaceForItsCell(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAndMigrate(t, url)
	db := openPlainDB(t, url)
	const raceCheck, lock = "if granted and lost then", "CONCAT('gate of ', DATABASE())"
	_, text, _ := strings.Cut(mysql.Articles("app"), "create procedure request_token(")
	text, _, _ = strings.Cut(text, "\n//\n")
	if strings.Count(text, raceCheck) != 1 {
		t.Fatalf("the procedure does not have %q once", raceCheck)
	}
	for _, statement := range []string{
		"DROP PROCEDURE request_token",
		"CREATE PROCEDURE request_token(" + strings.Replace(text, raceCheck, "DO GET_LOCK("+lock+", 600); "+raceCheck, 1),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 3, 3600)",
	} {
		mustExec(t, db, statement)
	}
	conn, holder := openConn(t, db), openConn(t, db)
	mustExec(t, holder, "DO GET_LOCK("+lock+", 0)")
	callErr := make(chan error, 1)
	go func() {
		result, err := conn.ExecContext(context.Background(), "CALL request_token('b')")
		if err == nil {
			var rows int64
			if rows, err = result.RowsAffected(); err == nil && rows != 1 {
				err = fmt.Errorf("got %d tokens, want 1", rows)
			}
		}
		callErr <- err
	}()
	awaitStatement(t, db, "GET_LOCK")
	mustExec(t, db, "INSERT INTO headgate_cells (limit_name, cell_key, law, unit) VALUES ('bucket.b', 'b', 1, 1000)")
	mustExec(t, holder, "DO RELEASE_LOCK("+lock+")")
	if err := await.Receive(t, "the first call", callErr); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"granted=1 remaining=1 ", "granted=1 remaining=0 ", "granted=0 remaining=0 ",
	} {
		if got := rowText(t, conn, "CALL request_token('b')"); !strings.HasPrefix(got, want) {
			t.Errorf("call %d: got %s, want %s", i, got, want)
		}
	}
}

// TestMigrateKeepsForeignProcedures checks that Migrate, and the printed schema with the articles' procedures, keep a
// procedure request_token that is not Headgate's.
func TestMigrateKeepsForeignProcedures(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	t.Run("Migrate", func(t *testing.T) {
		expectProcedureSurvives(t, func(url string) string {
			report, err := openStore(t, url).Migrate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(report, "\n")
		})
	})
	t.Run("Schema", func(t *testing.T) { expectProcedureSurvives(t, func(url string) string { return feedSchema(t, url) }) })
}

// TestSchemaKeepsForeignProceduresWithForce checks that the printed schema keeps a foreign procedure request_token even
// in a client that goes on after errors.
func TestSchemaKeepsForeignProceduresWithForce(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	expectProcedureSurvives(t, func(url string) string { return feedSchema(t, url, "--force") })
}

// expectProcedureSurvives checks that migrate keeps a foreign procedure request_token, names it in the output that it
// returns, and makes headgate_take. After the foreign one was dropped, migrate makes Headgate's.
func expectProcedureSurvives(t *testing.T, migrate func(url string) string) {
	t.Helper()
	url := dbtest.MariaDB(t)
	db := openPlainDB(t, url)
	mustExec(t, db, "CREATE PROCEDURE Request_Token(id CHAR(36)) SELECT 'mine'")
	for range 2 {
		report := migrate(url)
		const want = "request_token exists and is not ours; rename or drop it and migrate again"
		if !strings.Contains(strings.ToLower(report), want) {
			t.Errorf("got the report %s, want %q in it", report, want)
		}
		if got := rowText(t, db, "CALL request_token('b')"); !strings.HasSuffix(got, "=mine") {
			t.Errorf("the foreign procedure: got %s, want mine", got)
		}
	}
	if got, err := callTake(t, db, "headgate_take", "token-bucket 1/s", "k", "1"); err != nil || got.allowed != 1 {
		t.Errorf("headgate_take: got %+v, %v; want allowed 1", got, err)
	}
	withoutArticles := mysql.New(openMultiDB(t, url), nil)
	report, err := withoutArticles.Migrate(t.Context())
	if err != nil || strings.Contains(strings.Join(report, ";"), "not ours") {
		t.Errorf("Migrate without Config.Articles: got %q, %v; want no report of the procedure", report, err)
	}
	mustExec(t, db, "DROP PROCEDURE request_token")
	if report := migrate(url); strings.Contains(report, "not ours") {
		t.Errorf("after the drop: got the report %s, want no report of the procedure", report)
	}
	mustExec(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 1)")
	if got := rowText(t, db, "CALL request_token('b')"); !strings.HasPrefix(got, "granted=1 ") {
		t.Errorf("request_token after the drop: got %s, want granted=1", got)
	}
}

// feedSchema has the mysql client execute the scripts of Schema and Articles, and returns the client's output.
func feedSchema(t *testing.T, url string, options ...string) string {
	t.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	args := slices.Concat([]string{"--no-defaults", "--skip-ssl", "-uroot", "-h" + addr, "-P" + port}, options,
		[]string{name})
	cmd := osexec.CommandContext(t.Context(), "mariadb", args...)
	cmd.Stdin = strings.NewReader(mysql.Schema() + mysql.Articles(name))
	out, _ := cmd.CombinedOutput() // the output has the errors
	return string(out)
}

// beginTx begins a transaction at the server's default isolation level, or at READ COMMITTED if charges are refused at
// the default level because of innodb_snapshot_isolation.
func beginTx(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	setReadCommitted(t, conn)
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// beginTxWithOldSnapshot begins a transaction of REPEATABLE READ that sees no later change of a table. It turns
// innodb_snapshot_isolation off, with which charges are refused at this level.
func beginTxWithOldSnapshot(t *testing.T, db *sql.DB, table string) *sql.Tx {
	t.Helper()
	conn := openConn(t, db)
	if snapshotIsolation(t, conn) != "" {
		mustExec(t, conn, "SET SESSION innodb_snapshot_isolation = OFF")
	}
	tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	if n := rowText(t, tx, "SELECT COUNT(*) AS n FROM "+table); n != "n=0" {
		t.Fatalf("%s: got %s rows, want n=0", table, n)
	}
	return tx
}

// setReadCommitted sets a session to READ COMMITTED if charges in its transactions would be refused otherwise.
func setReadCommitted(t *testing.T, conn *sql.Conn) {
	t.Helper()
	if snapshotIsolation(t, conn) == "ON" {
		mustExec(t, conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	}
}

// snapshotIsolation returns the value of innodb_snapshot_isolation; empty if the server does not have it.
func snapshotIsolation(t *testing.T, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) string {
	t.Helper()
	var name, value string
	if err := db.QueryRowContext(t.Context(), "SHOW VARIABLES LIKE 'innodb_snapshot_isolation'").Scan(
		&name, &value); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return value
}
