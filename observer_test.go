package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// recordingObserver is an observer that records events.
type recordingObserver struct {
	mu      sync.Mutex
	events  []string
	batches []store.Batch
	sweeps  []store.Sweep
}

func (l *recordingObserver) Decided(_ context.Context, e headgate.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprint(e.Verb, " ", e.Decision.Allowed, " ", errors.Is(e.Err, headgate.ErrInvalid)))
	if e.Took <= 0 {
		l.events = append(l.events, "took no time")
	}
}

func (l *recordingObserver) Batched(b store.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.batches = append(l.batches, b)
}

func (l *recordingObserver) Retried(store.Retries) {}

func (l *recordingObserver) Swept(s store.Sweep) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sweeps = append(l.sweeps, s)
}

// TestAnObserverReceivesEveryDecision includes decisions that a store in this process makes at once, and attempts that
// fail.
func TestAnObserverReceivesEveryDecision(t *testing.T) {
	heard := new(recordingObserver)
	l := headgate.New(memory.New(nil), &headgate.Config{Observer: heard})
	ctx := t.Context()
	two := headgate.Charge{Limit: headgate.MustParse("fixed-window 2/1h from-first"), Key: "k"}
	job := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 1m"), Key: "k"}
	_, _ = l.Allow(ctx, two.Limit, "k")
	_, _ = l.Allow(ctx, two.Limit, "k")
	_, _ = l.Take(ctx, two)
	_, _ = l.Take(ctx, headgate.Charge{})
	_, _ = l.Check(ctx, two)
	_, _ = l.FillUp(ctx, headgate.Charge{Limit: two.Limit, Key: "new", Cost: headgate.Units(5)})
	_, _ = l.Reserve(ctx, time.Second, two)
	_, _ = l.Once("id", 0).Take(ctx, headgate.Charge{Limit: two.Limit, Key: "other"})
	_, _ = l.Batch(ctx, []headgate.Request{
		{Charges: []headgate.Charge{two}},
		{Charges: []headgate.Charge{two}, Check: true},
		{},
	})
	lease, err := l.Acquire(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(ctx)
	_ = l.Wait(ctx, headgate.Charge{Limit: two.Limit, Key: "waits"})
	_ = l.Wait(ctx, headgate.Charge{Limit: headgate.MustParse("token-bucket 2/1h"), Key: "queues"})
	lease, err = l.Await(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(ctx)
	_, _ = l.Debit(ctx, headgate.Charge{Limit: two.Limit, Key: "debit"})
	_, _ = l.Once("id", 0).Extend(ctx, headgate.Charge{Limit: two.Limit, Key: "other", Cost: headgate.Units(2)})
	want := []string{
		"take true false", "take true false", "take false false", "take false true", "check false false",
		"fill-up true false",
		"reserve false false", "take true false", "take false false", "check false false", "take false true",
		"acquire true false",
		"take true false", "reserve true false", "acquire true false", "debit true false", "extend true false",
	}
	if !slices.Equal(heard.events, want) {
		t.Errorf("heard %q\nwant  %q", heard.events, want)
	}
}

// chargeRecorder is an observer that records charges.
type chargeRecorder struct{ heard []string }

func (c *chargeRecorder) Decided(_ context.Context, e headgate.Event) {
	text := fmt.Sprint(e.Verb, " ", e.Accepted)
	for _, one := range e.Charges {
		text += fmt.Sprint(" ", one.Limit.Name(), "/", one.Key, "/", one.Cost)
	}
	c.heard = append(c.heard, text)
}

func TestAnObserverReceivesTheCharges(t *testing.T) {
	c := new(chargeRecorder)
	l := headgate.New(memory.New(nil), &headgate.Config{Observer: c})
	limit := headgate.MustParse("fixed-window 2/1h")
	charge := func(key, cost string) headgate.Charge {
		return headgate.Charge{Limit: limit, Key: key, Cost: headgate.MustCost(cost)}
	}
	_, _ = l.Take(t.Context(), charge("a", "0.5"), charge("b", "1"))
	_, _ = l.Allow(t.Context(), limit, "c")
	_, _ = l.Take(t.Context())
	_, _ = l.FillUp(t.Context(), charge("a", "9"))
	_, _ = l.Batch(t.Context(), []headgate.Request{{Charges: []headgate.Charge{charge("d", "1")}}, {}})
	want := []string{
		"take 0 fixed-window 2/1h/a/0.5 fixed-window 2/1h/b/1", "take 0 fixed-window 2/1h/c/0", "take 0",
		"fill-up 1.5 fixed-window 2/1h/a/9", "take 0 fixed-window 2/1h/d/1", "take 0",
	}
	if !slices.Equal(c.heard, want) {
		t.Errorf("heard %q\nwant  %q", c.heard, want)
	}
}

// TestAnObserverReceivesBatchesAndSweeps observes the recommended stack of wrappers.
func TestAnObserverReceivesBatchesAndSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := new(recordingObserver)
		inner := memory.New(nil)
		f := front.New(&slowStore{inner}, &front.Config{Observer: heard, SweepEvery: time.Second})
		l := headgate.New(f, nil)
		limit := headgate.MustParse("token-bucket 1000/s")
		for range 50 {
			go func() {
				if _, err := l.Allow(t.Context(), limit, "k"); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(3 * time.Second) // the sweeper chooses its time
		f.Close()
		callers := 0
		for _, b := range heard.batches {
			callers += b.Callers
			if b.Err != nil || b.Took != 2*time.Millisecond || b.Ops < 1 {
				t.Errorf("%+v", b)
			}
		}
		if callers != 50 || len(heard.batches) >= 50 || len(heard.sweeps) == 0 {
			t.Errorf("%d callers in %d batches, %d sweeps", callers, len(heard.batches), len(heard.sweeps))
		}
	})
}

// slowStore is a store that is not in this process.
type slowStore struct{ inner store.Store }

func (s *slowStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(2 * time.Millisecond)
	return s.inner.Apply(ctx, ops, outs)
}

func (s *slowStore) Sweep(ctx context.Context, n int) (int, error) { return s.inner.Sweep(ctx, n) }
func (s *slowStore) Close() error                                  { return s.inner.Close() }
