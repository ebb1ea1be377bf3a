package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

// neverDrains is a limit that never refuses in a test, and that drains nothing.
var neverDrains = law.Params{Kind: law.Bucket, Unit: 1, Capacity: 100_000, Step: 10_000_000_000, Drain: 1}

// takeSingle makes a single charge.
func takeSingle(ctx context.Context, s *mysql.Store) (law.Outcome, error) {
	outs := make([]law.Outcome, 1)
	err := s.Apply(ctx, []law.Op{{
		Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: neverDrains, Cost: 1, Count: 1,
	}}, outs)
	return outs[0], errors.Join(err, outs[0].Err)
}

// levelOf returns the level of the cell that takeSingle charges.
func levelOf(t *testing.T, db *sql.DB) (level int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT level FROM headgate_cells WHERE cell_key = 'k'").Scan(
		&level); err != nil {
		t.Fatal(err)
	}
	return level
}

// knowsReturning reports whether the server decides single charges by one statement.
func knowsReturning(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	var version string
	if err := db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		tb.Fatal(err)
	}
	return strings.Contains(version, "MariaDB")
}

// killWaiting waits until a statement that contains a text waits, kills it, and checks that its error says that nothing
// was done.
func killWaiting(t *testing.T, db *sql.DB, text string, failed <-chan error) {
	t.Helper()
	awaitStatement(t, db, text)
	var id int64
	if err := db.QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND "+
		"info LIKE ? AND id <> CONNECTION_ID()", "%"+text+"%").Scan(&id); err != nil {
		t.Fatal(err)
	}
	run(t, db, fmt.Sprint("KILL QUERY ", id))
	if err := await.Receive(t, "the statement that was killed", failed); !errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("killed: %v", err)
	}
}

// openKillable opens a store on a server on which a test may kill statements.
func openKillable(t *testing.T) (*mysql.Store, *sql.DB) {
	t.Helper()
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	return openAt(t, url), plainDB(t, url)
}

// TestASingleChargeKilledWhileItWaits kills a charge that waits for its row: the error must say that nothing was done.
func TestASingleChargeKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	run(t, tx, "UPDATE headgate_cells SET reason = reason")
	failed := make(chan error, 1)
	go func() {
		_, err := takeSingle(context.Background(), s)
		failed <- err
	}()
	killWaiting(t, db, "headgate_cells", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if level := levelOf(t, db); level != 1 {
		t.Errorf("the level is %d, want 1", level)
	}
}

// killWhile lets four callers call send while it kills all statements, until some requests were answered and some were
// killed. send gets a new number each time. It returns how many requests were answered, and how many have an unknown
// outcome. No other error may come.
func killWhile(t *testing.T, db *sql.DB, send func(ctx context.Context, n int64) error) (answered, unknown int64) {
	t.Helper()
	want := tier.Pick(int64(25), 200, 1000)
	var count struct{ sent, answered, unknown, nothing atomic.Int64 }
	enough := func() bool {
		return count.answered.Load() >= want && count.unknown.Load()+count.nothing.Load() >= want || t.Failed()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !enough() {
				// MySQL leaves some texts of several statements without an answer.
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				err := send(ctx, count.sent.Add(1))
				cancel()
				switch {
				case err == nil:
					count.answered.Add(1)
				case errors.Is(err, store.ErrUnknownOutcome):
					count.unknown.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					count.nothing.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for !enough() && ctx.Err() == nil {
		killAll(ctx, db)
	}
	if !enough() {
		t.Error("not enough of them were answered and killed")
	}
	wg.Wait()
	t.Logf("%d answered, %d not known, %d not done", count.answered.Load(), count.unknown.Load(), count.nothing.Load())
	return count.answered.Load(), count.unknown.Load()
}

// TestSingleChargesKilledAtAnyTime kills statements without end: all granted charges must be charged, and beyond them
// at most those of unknown outcome.
func TestSingleChargesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	granted, unknown := killWhile(t, db, func(ctx context.Context, _ int64) error {
		out, err := takeSingle(ctx, s)
		if err == nil && out.Granted != 1 {
			err = fmt.Errorf("granted %d", out.Granted)
		}
		return err
	})
	if level := levelOf(t, db); level < granted+1 || level > granted+1+unknown {
		t.Errorf("the level is %d after %d granted and %d not known", level, granted+1, unknown)
	}
}

// killAll kills the statements of other sessions in this database.
func killAll(ctx context.Context, db *sql.DB) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND "+
		"command <> 'Sleep' AND id <> CONNECTION_ID()")
	if err != nil {
		return
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	if rows.Err() != nil || rows.Close() != nil {
		return
	}
	for _, id := range ids {
		_, _ = db.ExecContext(ctx, fmt.Sprint("KILL QUERY ", id))
	}
}

// TestASingleChargeWhoseAnswerIsLost loses the answer of a charge, which may have been charged: it must not be
// repeated.
func TestASingleChargeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, db := dbtest.Swallow(t, host), plainDB(t, url)
	s := openAt(t, "mysql://root@"+proxy.Addr+"/"+name)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	proxy.Lose(true)
	if _, err := takeSingle(t.Context(), s); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("lost: %v", err)
	}
	proxy.Lose(false)
	await.Until(t, "the charge", func() bool { return levelOf(t, db) == 2 })
	out, err := takeSingle(t.Context(), s)
	if err != nil || out.Used != 3 {
		t.Errorf("then: %+v, %v; want three charges", out, err)
	}
}

// TestASingleChargeIsCommittedInAnySession sets variables of the session by the URL.
func TestASingleChargeIsCommittedInAnySession(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	headgateOf := func(option string) *headgate.Limiter {
		s, err := mysql.Open(t.Context(), url+"?"+option, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return limiter(s)
	}
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 9"), Key: "k"}
	options := []string{"sql_mode=%27%27", "sql_mode=%27ANSI%27", "completion_type=1"}
	if knowsReturning(t, plainDB(t, url)) { // elsewhere nothing can be charged in such a session
		options = append(options, "autocommit=0")
	}
	for i, option := range options {
		if d, err := headgateOf(option).Take(t.Context(), charge); err != nil || !d.Allowed {
			t.Errorf("%s: %+v, %v", option, d, err)
		}
		if d, err := headgateOf("autocommit=1").Check(t.Context(), charge); err != nil || d.Remaining != int64(9-1-i) {
			t.Errorf("%s, then: %+v, %v", option, d, err)
		}
	}
}
