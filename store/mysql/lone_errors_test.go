package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
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
func knowsReturning(t *testing.T, db *sql.DB) bool {
	t.Helper()
	var version string
	if err := db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(version, "MariaDB")
}

// killed kills the statement that looks like a pattern, once it is there, and checks that its
// error says that nothing was done.
func killed(t *testing.T, db *sql.DB, like string, failed <-chan error) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var id int64
		err := db.QueryRowContext(t.Context(), "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND "+
			"info LIKE '"+like+"' AND id <> CONNECTION_ID()").Scan(&id)
		if err == nil {
			if _, err := db.ExecContext(t.Context(), fmt.Sprint("KILL QUERY ", id)); err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, sql.ErrNoRows) || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if err := <-failed; !errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("killed: %v", err)
	}
}

// TestALoneChargeKilledWhileItWaits kills one that waits for its row: nothing was done, and
// that is what is said.
func TestALoneChargeKilledWhileItWaits(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	s, db := openAt(t, url), plain(t, url)
	if _, err := takeLone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "UPDATE headgate_cells SET reason = reason"); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		_, err := takeLone(context.Background(), s)
		failed <- err
	}()
	killed(t, db, "INSERT INTO headgate_cells%", failed)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if level := levelOf(t, db); level != 1 {
		t.Errorf("the level is %d, want 1", level)
	}
}

// TestLoneChargesKilledAtAnyTime kills statements without end: all that was granted is
// charged, and nothing more than that and what is not known.
func TestLoneChargesKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	s, db := openAt(t, url), plain(t, url)
	if _, err := takeLone(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	var mu sync.Mutex
	granted, unknown, nothing := int64(1), int64(0), 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				// MySQL leaves some texts of several statements without an answer.
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				out, err := takeLone(ctx, s)
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					granted += out.Granted
				case errors.Is(err, store.ErrUnknownOutcome):
					unknown++
				case errors.Is(err, store.ErrUnavailable):
					nothing++
				default:
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	for ctx.Err() == nil {
		killAll(ctx, db)
	}
	wg.Wait()
	t.Logf("%d granted, %d not known, %d not done", granted, unknown, nothing)
	if level := levelOf(t, db); level < granted || level > granted+unknown {
		t.Errorf("the level is %d after %d granted and %d not known", level, granted, unknown)
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
	url := dbtest.MariaDB(t)
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
	for deadline := time.Now().Add(time.Minute); levelOf(t, db) < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	out, err := takeLone(t.Context(), s)
	if err != nil || out.Used != 3 {
		t.Errorf("then: %+v, %v; want three charges", out, err)
	}
}

// TestALoneChargeIsCommittedWhateverTheSession: a URL may set variables of it.
func TestALoneChargeIsCommittedWhateverTheSession(t *testing.T) {
	t.Parallel()
	url := dbtest.MariaDB(t)
	openAt(t, url)
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
		if d, err := headgateOf("autocommit=1").Check(t.Context(), charge); err != nil || d.Remaining != int64(9-1-i-1) {
			t.Errorf("%s, then: %+v, %v", option, d, err)
		}
	}
}
