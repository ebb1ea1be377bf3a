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

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/mysql"
)

// tokenRequester requests tokens as the Go client of the article on token buckets does: by Exec, and by the number of
// affected rows.
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

// TestTheArticlesClientGetsTheTokensOfItsBucket lets four callers request more tokens than the bucket has in each of
// three periods, over connections with several options.
func TestTheArticlesClientGetsTheTokensOfItsBucket(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	admin := plainDB(t, url)
	for _, options := range []string{"", "multiStatements=true", "interpolateParams=true", "clientFoundRows=true"} {
		t.Run(options, func(t *testing.T) {
			run(t, admin, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b"+options+"', 5, 3600)")
			var passed, refused atomic.Int64
			call := limitAction(&tokenRequester{plainDB(t, url, options), "b" + options}, func(context.Context) error {
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
						for asked := 0; asked < 5; {
							var answer *driver.MySQLError
							err := call(t.Context())
							if errors.As(err, &answer) && answer.Number == needsRepreparation {
								continue
							}
							if asked++; errors.Is(err, errNoToken) {
								refused.Add(1)
							} else if err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				if n, no := passed.Load(), refused.Load(); n != 5*(period+1) || no != 15*(period+1) {
					t.Errorf("%d passed and %d were refused in %d periods, want 5 and 15 in each", n, no, period+1)
				}
			}
		})
	}
}

// elapse lets time pass for the cell of a key: it moves all of the cell's times back.
func elapse(t *testing.T, db *sql.DB, key string, by time.Duration) {
	t.Helper()
	us := by.Microseconds()
	run(t, db, fmt.Sprintf("UPDATE headgate_cells SET at = at - %d, empty_at = empty_at - %d WHERE cell_key = '%s'",
		us, us, key))
}

// TestRequestTokenCountsInsideATransaction requests tokens inside a transaction: the answer must not depend on the
// caller's other work, and the call must not commit it.
func TestRequestTokenCountsInsideATransaction(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	run(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 2, 3600)")
	createTable(t, db, "orders", "id int primary key")
	for round, want := range [][]int64{{1, 1, 0}, {1, 1, 0}, {1}, {1, 0}} { // all but the third are rolled back
		tx := beginTx(t, db)
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES (1), (2)"); err != nil {
			t.Fatal(err)
		}
		for i, n := range want {
			result, err := tx.ExecContext(t.Context(), "CALL request_token('b')")
			if err != nil {
				t.Fatal(err)
			}
			if got, err := result.RowsAffected(); err != nil || got != n {
				t.Errorf("round %d, call %d: %d rows, %v; want %d", round, i, got, err, n)
			}
		}
		if round == 2 {
			if _, err := tx.ExecContext(t.Context(), "DELETE FROM orders"); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		} else if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	var orders int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM orders").Scan(&orders); err != nil || orders != 0 {
		t.Errorf("%d orders outlived the caller's rollback, %v", orders, err)
	}
}

// TestOneOfManyFirstCallersGetsAToken requests tokens at once from buckets that nobody has used before.
func TestOneOfManyFirstCallersGetsAToken(t *testing.T) {
	t.Parallel()
	db, s := client(t)
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('a', 3, 3600), ('b', 3, 3600), ('c', 3, 3600), ('d', 3, 3600)"); err != nil {
		t.Fatal(err)
	}
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
			if i%7 == 0 { // a sweep finds nothing that may go
				if _, err := s.Sweep(t.Context(), 100); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range passed {
		if n := passed[i].Load(); n != 3 {
			t.Errorf("bucket %d: %d tokens, want 3", i, n)
		}
	}
}

// TestABucketThatIsBlockedAtItsFirstUseAnswersOnce makes the cell of a bucket while its first token is requested,
// between the read and the write.
func TestABucketThatIsBlockedAtItsFirstUseAnswersOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
	db := plainDB(t, url)
	const before, gate = "if granted and lost then", "CONCAT('gate of ', DATABASE())"
	_, text, _ := strings.Cut(mysql.Articles("app"), "create procedure request_token(")
	text, _, _ = strings.Cut(text, "\n//\n")
	if strings.Count(text, before) != 1 {
		t.Fatalf("the procedure does not say %q once", before)
	}
	for _, statement := range []string{
		"DROP PROCEDURE request_token",
		"CREATE PROCEDURE request_token(" + strings.Replace(text, before, "DO GET_LOCK("+gate+", 600); "+before, 1),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 3, 3600)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	conn, holder := connection(t, db), connection(t, db)
	run(t, holder, "DO GET_LOCK("+gate+", 0)")
	first := make(chan error, 1)
	go func() {
		result, err := conn.ExecContext(context.Background(), "CALL request_token('b')")
		if err == nil {
			var rows int64
			if rows, err = result.RowsAffected(); err == nil && rows != 1 {
				err = fmt.Errorf("%d tokens were given, want 1", rows)
			}
		}
		first <- err
	}()
	awaitStatement(t, db, "GET_LOCK")
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_cells (limit_name, cell_key, law, unit) VALUES ('bucket.b', 'b', 1, 1000)"); err != nil {
		t.Fatal(err)
	}
	run(t, holder, "DO RELEASE_LOCK("+gate+")")
	if err := await.Receive(t, "the first call", first); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"granted=1 remaining=1 ", "granted=1 remaining=0 ", "granted=0 remaining=0 ",
	} {
		if got := answerOf(t, conn, "CALL request_token('b')"); !strings.HasPrefix(got, want) {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

// TestOtherPeoplesProceduresSurviveMigrate migrates where somebody else has a procedure of the same name, by Migrate
// and by the printed schema.
func TestOtherPeoplesProceduresSurviveMigrate(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	t.Run("Migrate", func(t *testing.T) {
		expectSurvival(t, func(url string) string {
			report, err := openUnmigrated(t, url).Migrate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(report, "\n")
		})
	})
	t.Run("Schema", func(t *testing.T) { expectSurvival(t, func(url string) string { return feedSchema(t, url) }) })
}

// TestOtherPeoplesProceduresSurviveAClientThatGoesOnAfterErrors feeds the printed schema to such a client, where
// somebody else has a procedure of the same name.
func TestOtherPeoplesProceduresSurviveAClientThatGoesOnAfterErrors(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	expectSurvival(t, func(url string) string { return feedSchema(t, url, "--force") })
}

// expectSurvival makes the schema where somebody else has a procedure of the same name, which must survive. migrate
// returns the report.
func expectSurvival(t *testing.T, migrate func(url string) string) {
	t.Helper()
	url := dbtest.MariaDB(t)
	db := plainDB(t, url)
	run(t, db, "CREATE PROCEDURE Request_Token(id CHAR(36)) SELECT 'mine'")
	for range 2 {
		report := migrate(url)
		const want = "request_token exists and is not ours; rename or drop it and migrate again"
		if !strings.Contains(strings.ToLower(report), want) {
			t.Errorf("the report does not say %q: %s", want, report)
		}
		if got := answerOf(t, db, "CALL request_token('b')"); !strings.HasSuffix(got, "=mine") {
			t.Errorf("the user's procedure answers %s", got)
		}
	}
	if got, err := callTake(t, db, "headgate_take", "token-bucket 1/s", "k", "1"); err != nil || got.allowed != 1 {
		t.Errorf("the rest of the schema: %+v, %v", got, err)
	}
	unasked := mysql.New(pool(t, url), nil)
	report, err := unasked.Migrate(t.Context())
	if err != nil || strings.Contains(strings.Join(report, ";"), "not ours") {
		t.Errorf("without being asked for the articles: %q, %v", report, err)
	}
	run(t, db, "DROP PROCEDURE request_token")
	if report := migrate(url); strings.Contains(report, "not ours") {
		t.Errorf("when it is gone: %s", report)
	}
	run(t, db, "INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 1)")
	if got := answerOf(t, db, "CALL request_token('b')"); !strings.HasPrefix(got, "granted=1 ") {
		t.Errorf("then: %s", got)
	}
}

// feedSchema feeds the printed schema to the mysql client and returns its output.
func feedSchema(t *testing.T, url string, options ...string) string {
	t.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	args := slices.Concat([]string{"--no-defaults", "--skip-ssl", "-uroot", "-h" + addr, "-P" + port}, options,
		[]string{name})
	client := osexec.CommandContext(t.Context(), "mariadb", args...)
	client.Stdin = strings.NewReader(mysql.Schema() + mysql.Articles(name))
	out, _ := client.CombinedOutput() // an error is printed
	return string(out)
}

// beginTx begins a transaction at the server's default level, or at READ COMMITTED if MariaDB refuses to charge at the
// default level because of innodb_snapshot_isolation.
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

// setReadCommitted makes a session READ COMMITTED if its transactions could not charge otherwise.
func setReadCommitted(t *testing.T, conn *sql.Conn) {
	t.Helper()
	if snapshotIsolation(t, conn) == "ON" {
		run(t, conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
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
