package postgres_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/await"
)

// TestSeveralChargesWaitBeyondAnOverride makes requests wait for a cell until an override has ended. The limit itself
// must decide all charges then.
func TestSeveralChargesWaitBeyondAnOverride(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	caller, watcher := connect(t, dsn), connect(t, dsn)
	for name, tt := range map[string]struct{ call, wantDuring, wantAfter string }{
		"take_all": {
			joinRows("capacity || ' ' || remaining", `take_all('{user,org,user}', '{k,k,k}', '{1,1,1}')`),
			"30 29, 20 19, 30 28", "10 7, 20 18, 10 6",
		},
		"reserve_all": {
			joinRows("capacity || ' ' || remaining", `reserve_all('{user,org}', '{k,k}', '{1,1}', '1 hour')`),
			"30 29, 20 19", "10 8, 20 18",
		},
		"take_up_to": {"select capacity, accepted from headgate.take_up_to('user', 'k', 1)", "30 1", "10 1"},
		"enforce":    {"select remaining from headgate.enforce('user', 'k', 1)", "29", "8"},
	} {
		life := 250 * time.Millisecond // doubled if the machine pauses
		for !checkWaitBeyondOverride(t, conn, caller, watcher, life, name, tt.call, tt.wantDuring, tt.wantAfter) {
			life *= 2
		}
	}
}

// checkWaitBeyondOverride makes a call during an override, and another one that waits for its cells until the override
// has ended. It reports false if the override ended before the second call waited.
func checkWaitBeyondOverride(t *testing.T, conn, caller, watcher *pgx.Conn, life time.Duration,
	name, call, wantDuring, wantAfter string,
) (waitedInTime bool) {
	t.Helper()
	mustExec(t, conn, `truncate headgate.cells, headgate.limits, headgate.catalog`)
	mustExec(t, conn, `insert into headgate.limits (name, rule) values ('user', 'fixed-window 10/30d'), ('org', 'fixed-window 20/30d');
		insert into headgate.catalog (kind, name, key, text, until)
		values ('override', 'user', 'k', 'fixed-window 30/30d', (extract(epoch from clock_timestamp()) * 1000000)::bigint + 3600000000)`)
	if got := queryText(t, caller, call); got != wantDuring {
		t.Errorf("%s during the override: got %s, want %s", name, got, wantDuring)
	}
	var until time.Time
	if err := conn.QueryRow(t.Context(), `update headgate.catalog set until = (extract(epoch from clock_timestamp()) * 1000000)::bigint + $1
		returning 'epoch'::timestamptz + until * interval '1 us'`, life.Microseconds()).Scan(&until); err != nil {
		t.Fatal(err)
	}
	mustExec(t, conn, `begin; select from headgate.cells for update`)
	answer := make(chan string, 1)
	go func() { answer <- queryText(t, caller, call) }()
	waitForWaiter(t, watcher, conn)
	if err := conn.QueryRow(t.Context(), `select clock_timestamp() < $1`, until).Scan(&waitedInTime); err != nil {
		t.Fatal(err)
	}
	sleepUntil(t, conn, until)
	mustExec(t, conn, `commit`)
	if got := await.Receive(t, name, answer); waitedInTime && got != wantAfter {
		t.Errorf("%s after the override: got %s, want %s", name, got, wantAfter)
	}
	return waitedInTime
}

// TestConcurrentRequestsOfOneIDChargeOnce sends the same request of two charges by eight callers: one must charge, and
// the others must be replayed.
func TestConcurrentRequestsOfOneIDChargeOnce(t *testing.T) {
	t.Parallel()
	conn, dsn := openSession(t)
	const callers = 8
	var newRequests atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		caller := connect(t, dsn)
		wg.Go(func() {
			var allowed, replayed bool
			if err := caller.QueryRow(context.Background(), `select bool_and(allowed), bool_and(replayed) from headgate.take_all_once('i',
					array['fixed-window 10/30d', 'sliding-log 10/30d'], array['a', 'b'], array[2, 3])`).Scan(&allowed, &replayed); err != nil || !allowed {
				t.Errorf("take_all_once: got allowed %t, %v; want true", allowed, err)
			}
			if !replayed {
				newRequests.Add(1)
			}
		})
	}
	wg.Wait()
	remaining := queryText(t, conn, joinRows("remaining::text", `take_all('{fixed-window 10/30d,sliding-log 10/30d}', '{a,b}', '{1,1}')`))
	if newRequests.Load() != 1 || remaining != "7, 6" { // 10 less 2 and 3, less 1 of take_all
		t.Errorf("got %d charged requests, %s remaining; want 1, and 7, 6", newRequests.Load(), remaining)
	}
}
