package postgres_test

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/history/record"
	"github.com/headgate/headgate/internal/testing/sim/check"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/storetest"
)

// answerCounts counts the answers that callers got, before and after the promotion.
type answerCounts struct {
	sync.Mutex
	record.Answers
	promoted time.Time
	after    int // admissions since the promotion
}

// add counts an answer, and reports whether there were enough after the promotion.
func (a *answerCounts) add(t *testing.T, d headgate.Decision, err error) (enough bool) {
	a.Lock()
	defer a.Unlock()
	if other := a.Add(d, err); other != nil || err == nil && !d.Allowed {
		t.Errorf("got %+v, %v", d, err)
	}
	if err == nil && !a.promoted.IsZero() {
		a.after++
	}
	return a.after >= 40
}

// TestFailover kills the primary under load and promotes its synchronous standby. With a URL
// of both hosts and target_session_attrs=read-write the store goes on at the new primary. All
// admissions are charged there, and nothing else but charges whose outcome was unknown.
func TestFailover(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	pair := dbtest.StartPostgresPair(t)
	u, err := url.Parse(pair.Primary().DSN)
	if err != nil {
		t.Fatal(err)
	}
	second, err := url.Parse(pair.Standby().DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + second.Host
	u.RawQuery = "target_session_attrs=read-write"
	s := openAt(t, u.String())
	if _, err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby, err := postgres.Open(t.Context(), pair.Standby().DSN, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close()
	storetest.Finds(t, standby, store.Wrong, "primary", "name the primary")
	l := headgate.New(front.New(s, &front.Config{SweepEvery: -1}), nil)
	limit := headgate.MustParse("sliding-log 100000/1h")
	ask := record.NewAsker(limit, "k", history.Limit{
		Algorithm: history.SlidingLog, Amount: "100000", Period: time.Hour.Microseconds(),
	})

	var said answerCounts
	var callers sync.WaitGroup
	all, end := context.WithTimeout(t.Context(), 2*await.Patience)
	defer end()
	for range 4 {
		callers.Go(func() {
			for enough := false; !enough && all.Err() == nil; {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				d, err := ask.Allow(ctx, "test", l)
				cancel()
				enough = said.add(t, d, err)
			}
		})
	}
	await.Until(t, "callers", func() bool {
		said.Lock()
		defer said.Unlock()
		return said.Allowed > 100
	})
	ask.Recorder.Fault("primary", history.Fault{Kind: history.Kill})
	pair.Primary().Crash()
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	said.Lock()
	said.promoted = time.Now()
	said.Unlock()
	callers.Wait()

	if said.after < 40 {
		t.Fatalf("only %d admissions after the promotion: %+v", said.after, &said.Answers)
	}
	status, err := ask.RecordFinalState(t.Context(), headgate.New(s, nil)) // with more time than a decision has
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range check.Check(ask.Recorder.History()) {
		t.Error(v)
	}
	charged, err := strconv.Atoi(status.Used.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d charged; %+v", charged, &said.Answers)
	if charged < said.Allowed || charged > said.Allowed+said.Unknown {
		t.Errorf("%d are charged: %d were allowed, and of %d it is not known", charged, said.Allowed, said.Unknown)
	}
}
