package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/coalesce"
	"github.com/headgate/headgate/store/deny"
	"github.com/headgate/headgate/store/lease"
)

// TestFailover kills the primary under load and promotes its synchronous standby. By
// a URL of both hosts with target_session_attrs=read-write the store goes on at the
// new primary; all that was admitted is charged there, and nothing beyond it and what
// was reported as not known.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, standby, killPrimary := dbtest.PostgresPair(t)
	a, errA := url.Parse(primary)
	b, errB := url.Parse(standby)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	a.Host += "," + b.Host
	a.RawQuery = "target_session_attrs=read-write"
	s := openAt(t, a.String())
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := headgate.New(deny.New(lease.New(coalesce.New(s, nil), nil), nil), nil)
	limit := headgate.MustParse("sliding-log 100000/1h")

	var (
		mu                sync.Mutex
		allowed, unknown  int
		nothing           int
		last, gap, resume time.Time
		longest           time.Duration
		promoted          bool
		after             int // admissions since then
	)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				asked, give := context.WithTimeout(t.Context(), 10*time.Second)
				d, err := l.Allow(asked, limit, "k")
				give()
				mu.Lock()
				now := time.Now()
				switch {
				case err == nil && d.Allowed:
					allowed++
					if pause := now.Sub(last); !last.IsZero() && pause > longest {
						longest, gap, resume = pause, last, now
					}
					last = now
					if promoted {
						after++
					}
				case errors.Is(err, store.ErrUnknownOutcome):
					unknown++
				case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrReadOnly):
					nothing++
				default:
					t.Errorf("got %+v, %v", d, err)
				}
				done := after >= 40
				mu.Unlock()
				if done {
					return
				}
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	time.Sleep(time.Second)
	killPrimary()
	time.Sleep(500 * time.Millisecond)
	if _, err := connect(t, standby).Exec(t.Context(), "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	promoted = true
	promotedAt := time.Now()
	mu.Unlock()
	callers.Wait()
	if after < 40 {
		t.Fatalf("%d admissions after the promotion: %d unknown, %d with nothing charged", after, unknown, nothing)
	}
	status, err := l.Inspect(t.Context(), limit, "k")
	if err != nil {
		t.Fatal(err)
	}
	charged, err := strconv.Atoi(status.Used.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d allowed, %d unknown, %d with nothing charged; %d charged; %s without an admission, %s of it after the promotion (%v to %v)",
		allowed, unknown, nothing, charged, longest.Round(time.Millisecond), resume.Sub(promotedAt).Round(time.Millisecond), gap.Format(time.TimeOnly), resume.Format(time.TimeOnly))
	if charged < allowed || charged > allowed+unknown {
		t.Errorf("%d are charged: %d were allowed, and of %d it is not known", charged, allowed, unknown)
	}
}
