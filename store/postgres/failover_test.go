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

// answerCounts counts the answers that callers got, in total and since the promotion.
type answerCounts struct {
	sync.Mutex
	record.Answers
	promotedAt      time.Time // zero before the promotion
	admissionsAfter int       // admissions since the promotion
}

// minAdmissionsAfter is how many admissions the test waits for after the promotion.
const minAdmissionsAfter = 40

// add counts an answer, which must be an admission or an expected error, and reports whether minAdmissionsAfter are in.
func (a *answerCounts) add(t *testing.T, d headgate.Decision, err error) (enough bool) {
	a.Lock()
	defer a.Unlock()
	if unexpected := a.Add(d, err); unexpected != nil || err == nil && !d.Allowed {
		t.Errorf("got %+v, %v; want an admission or an expected error", d, err)
	}
	if err == nil && !a.promotedAt.IsZero() {
		a.admissionsAfter++
	}
	return a.admissionsAfter >= minAdmissionsAfter
}

// TestFailover kills the primary under load and promotes its synchronous standby. With both hosts in the URL, and
// target_session_attrs=read-write, the store continues at the new primary. There all admissions must be charged, and
// nothing else except charges whose outcome was unknown.
func TestFailover(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	pair := dbtest.StartPostgresPair(t)
	u, err := url.Parse(pair.Primary().DSN)
	if err != nil {
		t.Fatal(err)
	}
	standbyURL, err := url.Parse(pair.Standby().DSN)
	if err != nil {
		t.Fatal(err)
	}
	u.Host += "," + standbyURL.Host
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
	caller := record.NewAsker(limit, "k", history.Limit{
		Algorithm: history.SlidingLog, Amount: "100000", Period: time.Hour.Microseconds(),
	})

	var answers answerCounts
	var callers sync.WaitGroup
	testCtx, endCallers := context.WithTimeout(t.Context(), 2*await.Patience)
	defer endCallers()
	for range 4 {
		callers.Go(func() {
			for enough := false; !enough && testCtx.Err() == nil; {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				d, err := caller.Allow(ctx, "test", l)
				cancel()
				enough = answers.add(t, d, err)
			}
		})
	}
	await.Until(t, "callers", func() bool {
		answers.Lock()
		defer answers.Unlock()
		return answers.Allowed > 100
	})
	caller.Recorder.Fault("primary", history.Fault{Kind: history.Kill})
	pair.Primary().Crash()
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers.Lock()
	answers.promotedAt = time.Now()
	answers.Unlock()
	callers.Wait()

	if answers.admissionsAfter < minAdmissionsAfter {
		t.Fatalf("got %d admissions after the promotion, want %d: %+v", answers.admissionsAfter, minAdmissionsAfter,
			&answers.Answers)
	}
	status, err := caller.RecordFinalState(t.Context(), headgate.New(s, nil)) // without the wrappers and their deadline
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range check.Check(caller.Recorder.History()) {
		t.Errorf("the history has a violation: %v", v)
	}
	charged, err := strconv.Atoi(status.Used.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d charged; %+v", charged, &answers.Answers)
	if charged < answers.Allowed || charged > answers.Allowed+answers.Unknown {
		t.Errorf("got %d charged, want %d to %d", charged, answers.Allowed, answers.Allowed+answers.Unknown)
	}
}
