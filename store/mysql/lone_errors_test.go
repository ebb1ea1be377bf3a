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

// hugeBucket is a limit that refuses nothing and drains nothing during a test.
var hugeBucket = law.Params{Kind: law.Bucket, Unit: 1, Capacity: 100_000, Step: 10_000_000_000, Drain: 1}

// takeSingle charges 1 to key k of hugeBucket, in a batch of one op.
func takeSingle(ctx context.Context, s *mysql.Store) (law.Outcome, error) {
	return applyOne(ctx, s, hugeBucketOp(0, "k"))
}

// hugeBucketOp returns an op that takes 1 of a key of hugeBucket, under the name l.
func hugeBucketOp(group uint32, key string) law.Op {
	return law.Op{
		Verb: law.Take, Group: group, Cell: law.Cell{Limit: "l", Key: key}, Params: hugeBucket, Cost: 1, Count: 1,
	}
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

// hasReturning reports whether the server has INSERT ... RETURNING, which MariaDB has and MySQL has not.
func hasReturning(tb testing.TB, db *sql.DB) bool {
	tb.Helper()
	var version string
	if err := db.QueryRowContext(tb.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		tb.Fatal(err)
	}
	return strings.Contains(version, "MariaDB")
}

// killWaitingStatement awaits a statement that contains a text and waits for a lock, kills it, and checks that the
// error that arrives says that nothing was done.
func killWaitingStatement(t *testing.T, db *sql.DB, text string, errs <-chan error) {
	t.Helper()
	awaitStatement(t, db, text)
	var id int64
	if err := db.QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND "+
		"info LIKE ? AND id <> CONNECTION_ID()", "%"+text+"%").Scan(&id); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, fmt.Sprint("KILL QUERY ", id))
	if err := await.Receive(t, "the error of the killed statement", errs); !errors.Is(err, store.ErrUnavailable) ||
		errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("the killed statement: got %v, want ErrUnavailable and a known outcome", err)
	}
}

// openKillable opens a store, and a pool on the same database of the package's server, where a test may kill
// statements.
func openKillable(t *testing.T) (*mysql.Store, *sql.DB) {
	t.Helper()
	url := dbtest.MariaDBAt(t, packageServer(t))[0]
	return openAndMigrate(t, url), openPlainDB(t, url)
}

// TestKilledSingleChargeChargesNothing checks that a single charge that is killed while it waits for its row charges
// nothing, and returns an error that says so.
func TestKilledSingleChargeChargesNothing(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tx := beginTx(t, db)
	mustExec(t, tx, "UPDATE headgate_cells SET reason = reason")
	errs := make(chan error, 1)
	go func() {
		_, err := takeSingle(context.Background(), s)
		errs <- err
	}()
	killWaitingStatement(t, db, "headgate_cells", errs)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if level := levelOf(t, db); level != 1 {
		t.Errorf("got level %d, want 1", level)
	}
}

// sendDuringKills has four callers call send, with a new number each time, while it kills all statements, until
// minCount requests were answered and as many were killed. It returns how many requests were answered, and how many
// have an unknown outcome. It reports any error of a request that is neither ErrUnknownOutcome nor ErrUnavailable.
func sendDuringKills(t *testing.T, db *sql.DB, send func(context.Context, int64) error) (answered, unknown int64) {
	t.Helper()
	minCount := tier.Pick(int64(25), 200, 1000)
	var counts struct{ sent, answered, unknown, unavailable atomic.Int64 }
	isEnough := func() bool {
		killed := counts.unknown.Load() + counts.unavailable.Load()
		return counts.answered.Load() >= minCount && killed >= minCount || t.Failed()
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !isEnough() {
				// MySQL leaves some texts of several statements without an answer.
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				err := send(ctx, counts.sent.Add(1))
				cancel()
				switch {
				case err == nil:
					counts.answered.Add(1)
				case errors.Is(err, store.ErrUnknownOutcome):
					counts.unknown.Add(1)
				case errors.Is(err, store.ErrUnavailable):
					counts.unavailable.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for !isEnough() && ctx.Err() == nil {
		killStatements(ctx, db)
	}
	if !isEnough() {
		t.Errorf("got fewer than %d answered or fewer than %d killed requests", minCount, minCount)
	}
	wg.Wait()
	t.Logf("%d answered, %d unknown, %d not done", counts.answered.Load(), counts.unknown.Load(), counts.unavailable.Load())
	return counts.answered.Load(), counts.unknown.Load()
}

// TestSingleChargesKilledAtAnyTime checks that the level has all granted charges, and beyond them at most the charges
// of unknown outcome, while all statements are killed.
func TestSingleChargesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s, db := openKillable(t)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	granted, unknown := sendDuringKills(t, db, func(ctx context.Context, _ int64) error {
		out, err := takeSingle(ctx, s)
		if err == nil && out.Granted != 1 {
			err = fmt.Errorf("granted %d", out.Granted)
		}
		return err
	})
	if level := levelOf(t, db); level < granted+1 || level > granted+1+unknown {
		t.Errorf("got level %d, want from %d to %d", level, granted+1, granted+1+unknown)
	}
}

// killStatements kills the statements that other sessions of the database execute now.
func killStatements(ctx context.Context, db *sql.DB) {
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

// TestSingleChargeIsNotRepeatedAfterALostAnswer checks that a single charge whose answer a proxy loses returns
// ErrUnknownOutcome, and is charged once.
func TestSingleChargeIsNotRepeatedAfterALostAnswer(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	host, name, _ := strings.Cut(strings.TrimPrefix(url, "mysql://root@"), "/")
	proxy, db := dbtest.StartProxy(t, host), openPlainDB(t, url)
	s := openAndMigrate(t, "mysql://root@"+proxy.Addr+"/"+name)
	if _, err := takeSingle(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	proxy.Lose(true)
	if _, err := takeSingle(t.Context(), s); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("the lost answer: got %v, want ErrUnknownOutcome", err)
	}
	proxy.Lose(false)
	await.Until(t, "the charge", func() bool { return levelOf(t, db) == 2 })
	out, err := takeSingle(t.Context(), s)
	if err != nil || out.Used != 3 {
		t.Errorf("the next charge: got %+v, %v; want three charges", out, err)
	}
}

// TestSingleChargeCommitsInAnySession checks that a single charge is committed whatever sql_mode, completion_type or
// autocommit the URL sets.
func TestSingleChargeCommitsInAnySession(t *testing.T) {
	t.Parallel()
	url := migrated.MariaDB(t)
	openLimiter := func(option string) *headgate.Limiter {
		s, err := mysql.Open(t.Context(), url+"?"+option, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return newLimiter(s)
	}
	charge := headgate.Charge{Limit: headgate.MustParse("token-bucket 1/1h burst 9"), Key: "k"}
	options := []string{"sql_mode=%27%27", "sql_mode=%27ANSI%27", "completion_type=1"}
	if hasReturning(t, openPlainDB(t, url)) { // MySQL refuses charges in such a session
		options = append(options, "autocommit=0")
	}
	for i, option := range options {
		if d, err := openLimiter(option).Take(t.Context(), charge); err != nil || !d.Allowed {
			t.Errorf("%s: got %+v, %v; want it allowed", option, d, err)
		}
		if d, err := openLimiter("autocommit=1").Check(t.Context(), charge); err != nil || d.Remaining != int64(9-1-i) {
			t.Errorf("%s, in another session: got %+v, %v; want remaining %d", option, d, err, 9-1-i)
		}
	}
}
