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

// TestSeveralChargesByLimitsThatEnd makes a request wait for a cell until an override has ended. The limit itself
// decides all its charges then.
func TestSeveralChargesByLimitsThatEnd(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	waiting, watcher := connect(t, dsn), connect(t, dsn)
	for name, tt := range map[string]struct{ call, before, want string }{
		"take_all": {
			forAllRows("capacity || ' ' || remaining", `take_all('{user,org,user}', '{k,k,k}', '{1,1,1}')`),
			"30 29, 20 19, 30 28", "10 7, 20 18, 10 6",
		},
		"reserve_all": {
			forAllRows("capacity || ' ' || remaining", `reserve_all('{user,org}', '{k,k}', '{1,1}', '1 hour')`),
			"30 29, 20 19", "10 8, 20 18",
		},
		"take_up_to": {"select capacity, accepted from headgate.take_up_to('user', 'k', 1)", "30 1", "10 1"},
		"enforce":    {"select remaining from headgate.enforce('user', 'k', 1)", "29", "8"},
	} {
		life := 250 * time.Millisecond // doubled if the machine pauses
		for !endsWhileItWaits(t, conn, waiting, watcher, life, name, tt.call, tt.before, tt.want) {
			life *= 2
		}
	}
}

// endsWhileItWaits makes a call while an override holds, and another one that waits for its cells until the override
// has ended. It reports false if the override ended before the second call waited.
func endsWhileItWaits(t *testing.T, conn, waiting, watcher *pgx.Conn, life time.Duration,
	name, call, before, want string,
) bool {
	t.Helper()
	if _, err := conn.Exec(t.Context(), `truncate headgate.cells, headgate.limits, headgate.catalog`); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `insert into headgate.limits (name, rule) values ('user', 'fixed-window 10/30d'), ('org', 'fixed-window 20/30d');
		insert into headgate.catalog (kind, name, key, text, until)
		values ('override', 'user', 'k', 'fixed-window 30/30d', (extract(epoch from clock_timestamp()) * 1000000)::bigint + 3600000000)`); err != nil {
		t.Fatal(err)
	}
	if got := textOf(t, waiting, call); got != before {
		t.Errorf("%s: while the override holds: %s, want %s", name, got, before)
	}
	var until time.Time
	if err := conn.QueryRow(t.Context(), `update headgate.catalog set until = (extract(epoch from clock_timestamp()) * 1000000)::bigint + $1
		returning 'epoch'::timestamptz + until * interval '1 us'`, life.Microseconds()).Scan(&until); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `begin; select from headgate.cells for update`); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string, 1)
	go func() { answer <- textOf(t, waiting, call) }()
	waitForBlock(t, watcher, conn)
	var early bool
	if err := conn.QueryRow(t.Context(), `select clock_timestamp() < $1`, until).Scan(&early); err != nil {
		t.Fatal(err)
	}
	sleepUntil(t, conn, until)
	if _, err := conn.Exec(t.Context(), `commit`); err != nil {
		t.Fatal(err)
	}
	if got := await.Receive(t, name, answer); early && got != want {
		t.Errorf("%s: after the override: %s, want %s", name, got, want)
	}
	return early
}

// TestOneOfManyRequestsOfAnIDCharges sends the same request of several charges by eight callers.
func TestOneOfManyRequestsOfAnIDCharges(t *testing.T) {
	t.Parallel()
	conn, dsn := session(t)
	const callers = 8
	var charged atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		caller := connect(t, dsn)
		wg.Go(func() {
			var allowed, replayed bool
			if err := caller.QueryRow(context.Background(), `select bool_and(allowed), bool_and(replayed) from headgate.take_all_once('i',
					array['fixed-window 10/30d', 'sliding-log 10/30d'], array['a', 'b'], array[2, 3])`).Scan(&allowed, &replayed); err != nil || !allowed {
				t.Error(allowed, err)
			}
			if !replayed {
				charged.Add(1)
			}
		})
	}
	wg.Wait()
	left := textOf(t, conn, forAllRows("remaining::text", `take_all('{fixed-window 10/30d,sliding-log 10/30d}', '{a,b}', '{1,1}')`))
	if charged.Load() != 1 || left != "7, 6" {
		t.Errorf("%d were charged, then %s are left", charged.Load(), left)
	}
}
