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
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/history/record"
	"github.com/headgate/headgate/internal/sim/check"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// answers counts what callers were told.
type answers struct {
	sync.Mutex
	allowed, unknown, nothing int
	promoted                  time.Time
	after                     int       // admissions since the promotion
	last, resumed             time.Time // the latest admission; the end of the longest pause
	pause                     time.Duration
}

// add counts one, and reports whether there were enough after the promotion.
func (a *answers) add(t *testing.T, d headgate.Decision, err error) (enough bool) {
	a.Lock()
	defer a.Unlock()
	now := time.Now()
	switch {
	case err == nil && d.Allowed:
		a.allowed++
		if pause := now.Sub(a.last); !a.last.IsZero() && pause > a.pause {
			a.pause, a.resumed = pause, now
		}
		a.last = now
		if !a.promoted.IsZero() {
			a.after++
		}
	case errors.Is(err, store.ErrUnknownOutcome):
		a.unknown++
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrReadOnly):
		a.nothing++
	default:
		t.Errorf("got %+v, %v", d, err)
	}
	return a.after >= 40
}

// TestFailover kills the primary under load and promotes its synchronous standby. By
// a URL of both hosts with target_session_attrs=read-write the store goes on at the
// new primary; all that was admitted is charged there, and nothing beyond it and what
// was reported as not known.
func TestFailover(t *testing.T) {
	t.Parallel()
	primary, standby, killPrimary := dbtest.PostgresPair(t)
	u, err := url.Parse(primary)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(standby)
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + second.Host
	u.RawQuery = "target_session_attrs=read-write"
	s := openAt(t, u.String())
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	l := headgate.New(front.New(s, &front.Config{SweepEvery: -1}), nil)
	limit := headgate.MustParse("sliding-log 100000/1h")
	told := history.Limit{
		Name: limit.Name(), Version: 1, Algorithm: history.SlidingLog, Amount: "100000",
		Period: time.Hour.Microseconds(),
	}
	rec := record.New(nil)
	rec.Limit(told)

	var said answers
	var callers sync.WaitGroup
	end := time.Now().Add(time.Minute)
	for range 4 {
		callers.Go(func() {
			for enough := false; !enough && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				id := rec.Call("test", history.Call{
					Verb: history.Take, Charges: []history.Charge{record.Charge(&told, headgate.Charge{Key: "k"})},
				})
				d, err := l.Allow(ctx, limit, "k")
				rec.Decided("test", id, d, err)
				cancel()
				enough = said.add(t, d, err)
			}
		})
	}
	time.Sleep(time.Second)
	rec.Fault("primary", history.Fault{Kind: history.Kill})
	killPrimary()
	time.Sleep(500 * time.Millisecond)
	if _, err := connect(t, standby).Exec(t.Context(), "select pg_promote()"); err != nil {
		t.Fatal(err)
	}
	said.Lock()
	said.promoted = time.Now()
	said.Unlock()
	callers.Wait()

	if said.after < 40 {
		t.Fatalf("only %d admissions after the promotion: %d unknown, %d with nothing charged", said.after,
			said.unknown, said.nothing)
	}
	status, err := l.Inspect(t.Context(), limit, "k")
	if err != nil {
		t.Fatal(err)
	}
	rec.State(told, status)
	for _, v := range check.Check(rec.History()) {
		t.Error(v)
	}
	charged, err := strconv.Atoi(status.Used.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d allowed, %d unknown, %d with nothing charged; %d charged; %s without an admission, until %s after "+
		"the promotion", said.allowed, said.unknown,
		said.nothing, charged, said.pause.Round(time.Millisecond),
		said.resumed.Sub(said.promoted).Round(time.Millisecond))
	if charged < said.allowed || charged > said.allowed+said.unknown {
		t.Errorf("%d are charged: %d were allowed, and of %d it is not known", charged, said.allowed, said.unknown)
	}
}
