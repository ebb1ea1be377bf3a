package httplimit_test

import (
	"crypto/rand"
	"errors"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/sqlite"
)

// TestOnlyFailuresInADatabase checks in several stores that successes leave nothing charged, and that failures block.
func TestOnlyFailuresInADatabase(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := headgate.New(s, &headgate.Config{Timeout: time.Minute})
		for _, notation := range []string{"sliding-log 5/15d block 1d", "sliding-window 5/15d block 1d"} {
			limit := headgate.MustParse(notation)
			checkSuccesses(t, l, limit, 4)
			checkSuccesses(t, l, limit, 64)
			checkFailures(t, l, limit, 5)
		}
	})
}

// databases are the stores that keep their data outside of this process. make test uses the first one only.
var databases = []struct {
	name string
	open func(t *testing.T) (store.Store, error)
}{
	{"postgres", func(t *testing.T) (store.Store, error) { return postgres.Open(t.Context(), migrated.Postgres(t), nil) }},
	{"mysql", func(t *testing.T) (store.Store, error) { return mysql.Open(t.Context(), migrated.MariaDB(t), nil) }},
	{"redis", func(t *testing.T) (store.Store, error) { return redis.Open(t.Context(), dbtest.Redis(t), nil) }},
	{"sqlite", func(t *testing.T) (store.Store, error) {
		s, err := sqlite.Open(t.Context(), "sqlite:"+filepath.Join(t.TempDir(), "failures.db"), nil)
		if err == nil {
			_, err = s.Migrate(t.Context())
		}
		return s, err
	}},
}

// overStores runs a test over memory and over the databases of the tier.
func overStores(t *testing.T, test func(*testing.T, store.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memoryStore()) })
	for _, database := range tier.Pick(databases[:1], databases, databases) {
		t.Run(database.name, func(t *testing.T) {
			s, err := database.open(t)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			test(t, s)
		})
	}
}

// TestRefundsAfterAResetGiveBackNothing checks that a refund after a reset of the key gives back nothing: the reset has
// forgotten the charge. Otherwise more would pass than the limit admits.
func TestRefundsAfterAResetGiveBackNothing(t *testing.T) {
	onlyFailures := httplimit.HandlerConfig{OnlyFailures: true}
	refund := httplimit.HandlerConfig{RefundFailures: true}
	withID := httplimit.HandlerConfig{RefundFailures: true, ID: func(*http.Request) (string, error) {
		return rand.Text(), nil
	}}
	overStores(t, func(t *testing.T, s store.Store) {
		for _, tt := range []struct {
			cfg      httplimit.HandlerConfig
			notation string
		}{
			{onlyFailures, "sliding-log 5/15d"},
			{onlyFailures, "sliding-log 5/15d history 30d"},
			{onlyFailures, "sliding-window 5/15d"},
			{refund, "sliding-log 5/15d"},
			{refund, "sliding-window 5/15d"},
			{refund, "fixed-window 5/15d"},
			{refund, "fixed-window 5/15d from-first"},
			{refund, "token-bucket 5/15d"},
			{refund, "gcra 5/15d burst 5"},
			{refund, "interval 5/15d"},
			{refund, "leaky-bucket 5/15d capacity 5"},
			{withID, "fixed-window 5/15d from-first"},
			{withID, "token-bucket 5/15d"},
		} {
			tt.cfg.OnError = func(_ *http.Request, err error) {
				if !errors.Is(err, headgate.ErrUnknownID) {
					t.Errorf("%s: got %v, want %v", tt.notation, err, headgate.ErrUnknownID)
				}
			}
			l := headgate.New(s, &headgate.Config{Timeout: time.Minute})
			resetBeforeRefund(t, l, headgate.MustParse(tt.notation), tt.cfg)
		}
	})
}

// resetBeforeRefund resets a key while five requests are in flight, uses the limit up, and lets the requests end with a
// status that refunds them. The limit must stay used up.
func resetBeforeRefund(t *testing.T, l *headgate.Limiter, limit headgate.Limit, cfg httplimit.HandlerConfig) {
	t.Helper()
	const capacity = 5
	refundStatus, chargeStatus := 500, 200
	if cfg.OnlyFailures {
		refundStatus, chargeStatus = 200, 401
	}
	if _, err := l.Reset(t.Context(), limit, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	cfg.Charges = []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}}
	wrap, gate := mustHandler(t, l, cfg), newGatedHandler()
	codes := make(chan int, capacity)
	for range capacity {
		go func() { codes <- send(wrap(gate), "").Code }()
		<-gate.arrivals
	}
	if _, err := l.Reset(t.Context(), limit, "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	for range capacity {
		if code := send(wrap(respondWith(chargeStatus)), "").Code; code != chargeStatus {
			t.Errorf("%v: after the reset: got %d, want %d", limit, code, chargeStatus)
		}
	}
	for range capacity {
		gate.statuses <- refundStatus
		if code := <-codes; code != refundStatus {
			t.Errorf("%v: got %d, want %d", limit, code, refundStatus)
		}
	}
	// A bucket drains a little meanwhile: 1 in three days.
	if n, err := strconv.ParseFloat(usedUnits(t, l, limit, "192.0.2.1"), 64); err != nil || n > 5 || n < 4.9 {
		t.Errorf("%v: got %v used after the refunds, want 5 (%v)", limit, n, err)
	}
	if code := send(wrap(respondWith(chargeStatus)), "").Code; code != 429 {
		t.Errorf("%v: the sixth request after the reset: got %d, want 429", limit, code)
	}
}

// checkFailures lets requests of one address fail, one after another. The last failure must block the address: one more
// request is refused.
func checkFailures(t *testing.T, l *headgate.Limiter, limit headgate.Limit, failures int) {
	t.Helper()
	h := mustHandler(t, l, httplimit.HandlerConfig{
		OnlyFailures: true, Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
	})(respondWith(401))
	for i := range failures + 1 {
		want := 401
		if i == failures {
			want = 429
		}
		if code := send(h, "").Code; code != want {
			t.Errorf("%v: request %d: got %d, want %d", limit, i+1, code, want)
		}
		s, err := l.Inspect(t.Context(), limit, "192.0.2.1")
		if err != nil {
			t.Fatal(err)
		}
		if blocked := !s.BlockedUntil.IsZero(); blocked != (i+1 >= failures) {
			t.Errorf("%v: after %d failures: got blocked %v", limit, i+1, blocked)
		}
	}
}

// TestNextAfterMatchesUsage checks that NextAfter is the RetryAfter of Usage; with a log it may be longer.
func TestNextAfterMatchesUsage(t *testing.T) {
	overStores(t, func(t *testing.T, s store.Store) {
		l := headgate.New(s, &headgate.Config{Timeout: time.Minute})
		for _, notation := range []string{
			"token-bucket 5/15d", "gcra 3/1d burst 4", "interval 2/15d burst 5", "fixed-window 5/15d",
			"fixed-window 5/month", "fixed-window 5/15d from-first", "sliding-window 5/15d", "sliding-log 5/15d",
		} {
			limit, d := headgate.MustParse(notation), headgate.Decision{Remaining: 1}
			charge := headgate.Charge{Limit: limit, Key: "k", Cost: headgate.MustCost("0.75")}
			for d.Remaining > 0 {
				var err error
				if d, err = l.Take(t.Context(), charge); err != nil || !d.Allowed {
					t.Fatalf("%s: %+v, %v", notation, d, err)
				}
			}
			u, err := l.Usage(t.Context(), "k", limit)
			if err != nil {
				t.Fatal(err)
			}
			excess := d.At.Add(d.NextAfter).Sub(u[0].At.Add(u[0].RetryAfter))
			if isLog := limit.Params().Kind == law.Log; excess < 0 || excess > time.Microsecond && !isLog {
				t.Errorf("%s: got NextAfter %v, RetryAfter of Usage is %v", notation, d.NextAfter, u[0].RetryAfter)
			}
		}
	})
}
