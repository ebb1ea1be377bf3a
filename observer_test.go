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

// recordingObserver is an observer that records decisions, batches and sweeps.
type recordingObserver struct {
	mu      sync.Mutex
	events  []string // decisions: the verb, whether it was allowed, whether the error was ErrInvalid
	batches []store.Batch
	sweeps  []store.Sweep
}

func (o *recordingObserver) Decided(_ context.Context, e headgate.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprint(e.Verb, " ", e.Decision.Allowed, " ", errors.Is(e.Err, headgate.ErrInvalid)))
	if e.Took <= 0 {
		o.events = append(o.events, "took no time")
	}
}

func (o *recordingObserver) Batched(b store.Batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches = append(o.batches, b)
}

func (o *recordingObserver) Retried(store.Retries) {}

func (o *recordingObserver) Swept(s store.Sweep) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sweeps = append(o.sweeps, s)
}

// TestAnObserverReceivesEveryDecision checks that calls report each decision and each error once, by their verbs.
func TestAnObserverReceivesEveryDecision(t *testing.T) {
	observer := new(recordingObserver)
	l := headgate.New(memory.New(nil), &headgate.Config{Observer: observer})
	ctx := t.Context()
	charge := headgate.Charge{Limit: headgate.MustParse("fixed-window 2/1h from-first"), Key: "k"}
	job := headgate.Charge{Limit: headgate.MustParse("concurrency 1 ttl 1m"), Key: "k"}
	_, _ = l.Allow(ctx, charge.Limit, "k")
	_, _ = l.Allow(ctx, charge.Limit, "k")
	_, _ = l.Take(ctx, charge)
	_, _ = l.Take(ctx, headgate.Charge{})
	_, _ = l.Check(ctx, charge)
	_, _ = l.FillUp(ctx, headgate.Charge{Limit: charge.Limit, Key: "new", Cost: headgate.Units(5)})
	_, _ = l.Reserve(ctx, time.Second, charge)
	_, _ = l.Once("id", 0).Take(ctx, headgate.Charge{Limit: charge.Limit, Key: "other"})
	_, _ = l.Batch(ctx, []headgate.Request{
		{Charges: []headgate.Charge{charge}},
		{Charges: []headgate.Charge{charge}, Check: true},
		{},
	})
	lease, err := l.Acquire(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(ctx)
	_ = l.Wait(ctx, headgate.Charge{Limit: charge.Limit, Key: "waits"})
	_ = l.Wait(ctx, headgate.Charge{Limit: headgate.MustParse("token-bucket 2/1h"), Key: "queues"})
	lease, err = l.Await(ctx, job)
	if err != nil {
		t.Fatal(err)
	}
	_ = lease.Release(ctx)
	_, _ = l.Debit(ctx, headgate.Charge{Limit: charge.Limit, Key: "debit"})
	_, _ = l.Once("id", 0).Extend(ctx, headgate.Charge{Limit: charge.Limit, Key: "other", Cost: headgate.Units(2)})
	want := []string{
		"take true false", "take true false", "take false false", "take false true", "check false false",
		"fill-up true false",
		"reserve false false", "take true false", "take false false", "check false false", "take false true",
		"acquire true false",
		"take true false", "reserve true false", "acquire true false", "debit true false", "extend true false",
	}
	if !slices.Equal(observer.events, want) {
		t.Errorf("got  %q\nwant %q", observer.events, want)
	}
}

// chargeRecordingObserver is an observer that records the verb, the accepted cost and the charges of each event.
type chargeRecordingObserver struct{ events []string }

func (o *chargeRecordingObserver) Decided(_ context.Context, e headgate.Event) {
	text := fmt.Sprint(e.Verb, " ", e.Accepted)
	for _, c := range e.Charges {
		text += fmt.Sprint(" ", c.Limit.Name(), "/", c.Key, "/", c.Cost)
	}
	o.events = append(o.events, text)
}

func TestAnObserverReceivesTheCharges(t *testing.T) {
	observer := new(chargeRecordingObserver)
	l := headgate.New(memory.New(nil), &headgate.Config{Observer: observer})
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
	if !slices.Equal(observer.events, want) {
		t.Errorf("got  %q\nwant %q", observer.events, want)
	}
}

// TestAnObserverReceivesBatchesAndSweeps checks that package front reports the batches of 50 callers, and sweeps.
func TestAnObserverReceivesBatchesAndSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := new(recordingObserver)
		f := front.New(&slowStore{memory.New(nil)}, &front.Config{Observer: observer, SweepEvery: time.Second})
		l := headgate.New(f, nil)
		limit := headgate.MustParse("token-bucket 1000/s")
		for range 50 {
			go func() {
				if _, err := l.Allow(t.Context(), limit, "k"); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(3 * time.Second) // a pause of the sweeper is 0.5 to 1.5 times SweepEvery
		f.Close()
		callers := 0
		for _, b := range observer.batches {
			callers += b.Callers
			if b.Err != nil || b.Took != 2*time.Millisecond || b.Ops < 1 {
				t.Errorf("got %+v, want a batch of at least one op that took 2 ms", b)
			}
		}
		if callers != 50 || len(observer.batches) >= 50 || len(observer.sweeps) == 0 {
			t.Errorf("got %d callers in %d batches, and %d sweeps; want 50 in fewer batches, and sweeps", callers,
				len(observer.batches), len(observer.sweeps))
		}
	})
}

// slowStore is a store that takes two milliseconds for a batch. It is not a local store.
type slowStore struct{ inner store.Store }

func (s *slowStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	time.Sleep(2 * time.Millisecond)
	return s.inner.Apply(ctx, ops, outs)
}

func (s *slowStore) Sweep(ctx context.Context, n int) (int, error) { return s.inner.Sweep(ctx, n) }
func (s *slowStore) Close() error                                  { return s.inner.Close() }
