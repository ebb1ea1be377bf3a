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

// slowly is a limit that never refuses in a test, and of which nothing drains.
var slowly = law.Params{Kind: law.Bucket, Unit: 1, Capacity: 100_000, Step: 10_000_000_000, Drain: 1}

// takeLone asks for one lone charge.
func takeLone(ctx context.Context, s *mysql.Store) (law.Outcome, error) {
	outs := make([]law.Outcome, 1)
	err := s.Apply(ctx, []law.Op{{
		Verb: law.Take, Cell: law.Cell{Limit: "l", Key: "k"}, Params: slowly, Cost: 1, Count: 1,
	}}, outs)
	return outs[0], errors.Join(err, outs[0].Err)
}

// levelOf returns the level of the cell that takeLone charges.
func levelOf(t *testing.T, db *sql.DB) (level int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT level FROM headgate_cells WHERE cell_key = 'k'").Scan(
		&level); err != nil {
		t.Fatal(err)
	}
	return level
}

// knowsReturning reports whether the server decides lone charges by one statement.
func knowsReturning(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	var version string
	if err := db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		tb.Fatal(err)
	}
	return strings.Contains(version, "MariaDB")
}

// killed kills the statement that has a text in it, once it waits, and checks that its error says that nothing was
// done.
func killed(t *testing.T, db *sql.DB, text string, failed <-chan error) {
	t.Helper()
	waits(t, db, text)
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

// killable opens a store on a server on which a test may kill statements.
func killable(t *testing.T) (*mysql.Store, *sql.DB) {
	t.Helper()
	url := dbtest.MariaDBAt(t, ownServer(t))[0]
	return openAt(t, url), plain(t, url)
}

// TestALoneChargeKilledWhileItWaits kills one that waits for its row: nothing was done, and
// that is what is said.
func TestALoneChargeKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	s, db := killable(t)
	if _, err := takeLone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db)
	run(t, tx, "UPDATE headgate_cells SET reason = reason")
	failed := make(chan error, 1)
	go func() {
		_, err := takeLone(context.Background(), s)
		failed <- err
	}()
	killed(t, db, "headgate_cells", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if level := levelOf(t, db); level != 1 {
		t.Errorf("the level is %d, want 1", level)
	}
}

// kills has four callers ask while all statements are killed, until some requests were answered and some were killed.
// ask is called with a new number each time. It returns how many requests were answered, and of how many it is not
// known whether they were charged. No other error may come.
func kills(t *testing.T, db *sql.DB, ask func(ctx context.Context, n int64) error) (answered, unknown int64) {
	t.Helper()
	want := tier.Pick(int64(25), 200, 1000)
	var count struct{ asked, answered, unknown, nothing atomic.Int64 }
	enough := func() bool {
		return count.answered.Load() >= want && count.unknown.Load()+count.nothing.Load() >= want || t.Failed()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !enough() {
				// MySQL leaves some texts of several statements without an answer.
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				err := ask(ctx, count.asked.Add(1))
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

// TestLoneChargesKilledAtAnyTime kills statements without end: all that was granted is
// charged, and nothing more than that and what is not known.
func TestLoneChargesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := killable(t)
	if _, err := takeLone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	granted, unknown := kills(t, db, func(ctx context.Context, _ int64) error {
		out, err := takeLone(ctx, s)
		if err == nil && out.Granted != 1 {
			err = fmt.Errorf("granted %d", out.Granted)
		}
		return err
	})
	if level := levelOf(t, db); level < granted+1 || level > granted+1+unknown {
		t.Errorf("the level is %d after %d granted and %d not known", level, granted+1, unknown)
	}
}

// killAll kills the statements of the others in this database.
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

// TestALoneChargeWhoseAnswerIsLost may have been charged, and is not asked for again.
func TestALoneChargeWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, db := dbtest.Swallow(t, host), plain(t, url)
	s := openAt(t, "mysql://root@"+proxy.Addr+"/"+name)
	if _, err := takeLone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	proxy.Lose(true)
	if _, err := takeLone(t.Context(), s); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("lost: %v", err)
	}
	proxy.Lose(false)
	await.Until(t, "the charge", func() bool { return levelOf(t, db) == 2 })
	out, err := takeLone(t.Context(), s)
	if err != nil || out.Used != 3 {
		t.Errorf("then: %+v, %v; want three charges", out, err)
	}
}

// TestALoneChargeIsCommittedWhateverTheSession: a URL may set variables of it.
func TestALoneChargeIsCommittedWhateverTheSession(t *testing.T) {
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
	if knowsReturning(t, plain(t, url)) { // elsewhere nothing can be charged in such a session
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
