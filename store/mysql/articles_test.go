package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	osexec "os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store/mysql"
)

// tokenRequester asks as the Go client of the article on token buckets does: by
// Exec, and by the number of affected rows.
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

// limited is the article's wrapper around what is limited.
func limited(r *tokenRequester, action func(context.Context) error) func(context.Context) error {
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

// TestTheArticlesClientGetsTheTokensOfItsBucket lets four callers ask for three
// seconds, each over connections as a program may have opened them. The periods
// of a bucket begin with a request, so three seconds touch four at most.
func TestTheArticlesClientGetsTheTokensOfItsBucket(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
	admin := plain(t, url)
	for _, options := range []string{"", "multiStatements=true", "interpolateParams=true", "clientFoundRows=true"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			if _, err := admin.ExecContext(t.Context(),
				"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES (?, 5, 1)",
				"b"+options); err != nil {
				t.Fatal(err)
			}
			var passed, refused atomic.Int64
			call := limited(&tokenRequester{plain(t, url, options), "b" + options}, func(context.Context) error {
				passed.Add(1)
				return nil
			})
			begin := time.Now()
			asks := func() bool { // for longer where a busy machine begins a period late, or uses none up
				took := time.Since(begin)
				return took < 3*time.Second || took < time.Minute && (passed.Load() < 10 || refused.Load() == 0)
			}
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					var answer *driver.MySQLError
					for asks() {
						switch err := call(t.Context()); {
						case errors.Is(err, errNoToken):
							refused.Add(1)
						case errors.As(err, &answer) && answer.Number == needsRepreparation:
						case err != nil:
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			took := time.Since(begin)
			t.Logf("%d passed, %d were refused", passed.Load(), refused.Load())
			if n, most := passed.Load(), 5*(int64(took/time.Second)+1); n < 10 || n > most {
				t.Errorf("%d passed in %s, want 5 in each second, %d at most", n, took, most)
			}
			if refused.Load() == 0 {
				t.Error("none was refused")
			}
		})
	}
}

// TestRequestTokenCountsInsideATransaction: the caller's other work does not show
// in what the call answers, nor is it committed by it.
func TestRequestTokenCountsInsideATransaction(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	for _, statement := range []string{
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 2, 3600)",
		"CREATE TABLE orders (id int primary key)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	for round, want := range [][]int64{{1, 1, 0}, {1, 1, 0}, {1}, {1, 0}} { // all but the third are rolled back
		tx := begin(t, db)
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

// TestOneOfManyFirstCallersGetsAToken asks at once for tokens of buckets that
// nobody has asked before.
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

// TestABucketThatIsBlockedAtItsFirstUseAnswersOnce makes the cell of a bucket while
// its first token is asked for, between the look and the write. MariaDB does not
// bear an error of a statement that returns rows, so there is to be none.
func TestABucketThatIsBlockedAtItsFirstUseAnswersOnce(t *testing.T) {
	t.Parallel()
	db, _ := client(t)
	const before = "set tries = 100;"
	_, text, _ := strings.Cut(mysql.Schema(), "create procedure request_token(")
	text, _, _ = strings.Cut(text, "\n//\n")
	if strings.Count(text, before) != 1 {
		t.Fatalf("the procedure does not say %q once", before)
	}
	for _, statement := range []string{
		"DROP PROCEDURE request_token",
		"CREATE PROCEDURE request_token(" + strings.Replace(text, before, before+" DO SLEEP(2);", 1),
		"INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 3, 3600)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first := make(chan error)
	go func() {
		result, err := conn.ExecContext(context.Background(), "CALL request_token('b')")
		if err == nil {
			var rows int64
			if rows, err = result.RowsAffected(); rows != 0 {
				err = errors.New("a token was given that another may have blocked")
			}
		}
		first <- err
	}()
	for deadline, sleeps := time.Now().Add(time.Minute), 0; sleeps == 0; time.Sleep(5 * time.Millisecond) {
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist WHERE "+
			"db = DATABASE() AND state = 'User sleep'").Scan(&sleeps); err != nil || time.Now().After(deadline) {
			t.Fatal("the call does not sleep", err)
		}
	}
	if _, err := db.ExecContext(t.Context(),
		"INSERT INTO headgate_cells (limit_name, cell_key, law, unit) VALUES ('bucket.b', 'b', 1, 1000)"); err != nil {
		t.Fatal(err)
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"granted=1 remaining=2 ", "granted=1 remaining=1 ", "granted=1 remaining=0 ",
		"granted=0 remaining=0 ",
	} {
		if got := answer(t, conn, "CALL request_token('b')"); !strings.HasPrefix(got, want) {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
}

// TestOtherPeoplesProceduresSurviveMigrate: twice by Migrate, and by the printed
// schema, also under a client that goes on after errors.
func TestOtherPeoplesProceduresSurviveMigrate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		migrate func(t *testing.T, url string) string // what was reported
	}{
		{"Migrate", func(t *testing.T, url string) string {
			s, err := mysql.Open(t.Context(), url, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			report, err := s.Migrate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(report, "\n")
		}},
		{"Schema", func(t *testing.T, url string) string { return feed(t, url) }},
		{"Schema with --force", func(t *testing.T, url string) string { return feed(t, url, "--force") }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.MariaDB(t)
			db := plain(t, url)
			exec := func(statement string) {
				t.Helper()
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			exec("CREATE PROCEDURE Request_Token(id CHAR(36)) SELECT 'mine'")
			for range 2 {
				report := tt.migrate(t, url)
				if want := "request_token exists and is not ours; rename or drop it and migrate again"; !strings.Contains(strings.ToLower(report), want) {
					t.Errorf("the report does not say %q: %s", want, report)
				}
				if got := answer(t, db, "CALL request_token('b')"); !strings.HasSuffix(got, "=mine") {
					t.Errorf("the user's procedure answers %s", got)
				}
			}
			if got, err := call(t, db, "headgate_take", "token-bucket 1/s", "k", "1"); err != nil || got.allowed != 1 {
				t.Errorf("the rest of the schema: %+v, %v", got, err)
			}

			exec("DROP PROCEDURE request_token")
			report := tt.migrate(t, url)
			if strings.Contains(report, "not ours") {
				t.Errorf("when it is gone: %s", report)
			}
			exec("INSERT INTO headgate_buckets (id, capacity, refill_seconds) VALUES ('b', 1, 1)")
			if got := answer(t, db, "CALL request_token('b')"); !strings.HasPrefix(got, "granted=1 ") {
				t.Errorf("then: %s", got)
			}
		})
	}
}

// feed gives the printed schema to the mysql client and returns what that prints.
func feed(t *testing.T, url string, options ...string) string {
	t.Helper()
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	addr, port, _ := strings.Cut(host, ":")
	args := slices.Concat([]string{"--no-defaults", "--skip-ssl", "-uroot", "-h" + addr, "-P" + port}, options,
		[]string{name})
	client := osexec.CommandContext(t.Context(), "mariadb", args...)
	client.Stdin = strings.NewReader(mysql.Schema())
	out, _ := client.CombinedOutput() // an error is printed
	return string(out)
}

// begin begins a transaction at the server's own level; where that is one in which
// MariaDB with innodb_snapshot_isolation refuses to charge, at READ COMMITTED.
func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	allow(t, conn)
	tx, err := conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// allow makes a session READ COMMITTED where its transactions could not charge else.
func allow(t *testing.T, conn *sql.Conn) {
	t.Helper()
	if snapshots(t, conn) == "ON" {
		run(t, conn, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
	}
}

// snapshots returns what innodb_snapshot_isolation is; "" where there is none.
func snapshots(t *testing.T, db interface {
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
