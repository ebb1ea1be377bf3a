package catalog_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// manualClock is a clock that a test sets.
type manualClock struct{ micros atomic.Int64 }

func (c *manualClock) now() int64 { return c.micros.Load() }

// TestAnOverrideEndsByTheStoresClock checks that an override decides what is taken, checked, reserved or acquired
// until its end, and then the plan until its end. The process's clock is right, or wrong by up to an hour.
func TestAnOverrideEndsByTheStoresClock(t *testing.T) {
	var clock manualClock
	clock.micros.Store(time.Now().UnixMicro())
	s := memory.New(&memory.Config{Clock: clock.now})
	c := open(t, s)
	mustSet(t, c, define(t, "login", "token-bucket 1/1h burst 1000"), define(t, "jobs", "concurrency 1000 ttl 1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{limit(t, "login", "token-bucket 1/1h burst 2000")},
	}))
	overrideEnd := time.UnixMicro(clock.now() + 10_000_000)
	planEnd := overrideEnd.Add(10 * time.Second)
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob", Until: planEnd}))
	mustSucceed(t)(c.Override(t.Context(), admin,
		catalog.Override{Limit: limit(t, "login", "fixed-window 3000/1h"), Key: "bob", Until: overrideEnd},
		catalog.Override{Limit: limit(t, "jobs", "concurrency 3000 ttl 1h"), Key: "bob", Until: overrideEnd}))

	charge := headgate.Charge{Limit: headgate.MustNamed("login"), Key: "bob"}
	job := headgate.Charge{Limit: headgate.MustNamed("jobs"), Key: "bob"}
	other := headgate.Charge{Limit: headgate.MustNamed("login"), Key: "other"}
	requests := map[string]func(l *headgate.Limiter) (headgate.Decision, error){
		"take":  func(l *headgate.Limiter) (headgate.Decision, error) { return l.Take(t.Context(), charge) },
		"check": func(l *headgate.Limiter) (headgate.Decision, error) { return l.Check(t.Context(), charge) },
		"two charges": func(l *headgate.Limiter) (headgate.Decision, error) {
			d, err := l.Take(t.Context(), charge, other)
			if err == nil {
				d.Applied, d.Capacity = d.Each[0].Applied, d.Each[0].Capacity
			}
			return d, err
		},
		"with an id": func(l *headgate.Limiter) (headgate.Decision, error) {
			return l.Once(fmt.Sprint(time.Now().UnixNano()), 0).Take(t.Context(), charge)
		},
		"fill up": func(l *headgate.Limiter) (headgate.Decision, error) {
			f, err := l.FillUp(t.Context(), charge)
			return f.Decision, err
		},
		"reserve": func(l *headgate.Limiter) (headgate.Decision, error) {
			r, err := l.Reserve(t.Context(), time.Second, charge)
			if err != nil {
				return headgate.Decision{}, err
			}
			return r.Decision, nil
		},
		"batch": func(l *headgate.Limiter) (headgate.Decision, error) {
			list, err := l.Batch(t.Context(), []headgate.Request{
				{Charges: []headgate.Charge{charge}}, {Charges: []headgate.Charge{other}},
			})
			if err != nil {
				return headgate.Decision{}, err
			}
			if list[1].Err != nil || list[1].Decision.Capacity != 1000 {
				t.Errorf("the other request of the batch: got %+v, want capacity 1000", list[1])
			}
			return list[0].Decision, list[0].Err
		},
		"acquire": func(l *headgate.Limiter) (headgate.Decision, error) {
			lease, err := l.Acquire(t.Context(), job)
			if err != nil {
				return headgate.Decision{}, err
			}
			return lease.Decision, lease.Release(t.Context())
		},
	}
	wrappers := front.New(s, &front.Config{Guard: &front.GuardConfig{Deadline: time.Minute}})
	defer wrappers.Close()
	for name, request := range requests {
		for _, want := range []struct {
			at       time.Time
			capacity int64
			applied  string
		}{
			{overrideEnd.Add(-time.Microsecond), 3000, "override"},
			{overrideEnd, 2000, "plan pro"},
			{planEnd.Add(-time.Microsecond), 2000, "plan pro"},
			{planEnd, 1000, ""},
		} {
			for _, clockError := range []time.Duration{0, -time.Hour, 15 * time.Second, -5 * time.Second} {
				clock.micros.Store(want.at.UnixMicro())
				// With the right clock, requests go through the wrappers of a server too.
				l := headgate.New(map[bool]store.Store{true: wrappers, false: s}[clockError == 0], &headgate.Config{
					Names: c, Clock: func() int64 { return clock.now() + clockError.Microseconds() },
				})
				for _, key := range []string{charge.Key, other.Key} { // their cells may be ahead of the clock
					if _, err := l.Reset(t.Context(), charge.Limit, key); err != nil {
						t.Fatal(err)
					}
				}
				d, err := request(l)
				if name == "acquire" && want.applied == "plan pro" { // the plan has no limit jobs
					want.applied, want.capacity = "", 1000
				}
				if err != nil || d.Applied != want.applied || d.Capacity != want.capacity ||
					!d.At.Equal(want.at) && name != "acquire" {
					t.Errorf("%s, clock %s off, %s after the end: got %q, %d, at %s, %v; want %q, %d", name, clockError,
						want.at.Sub(overrideEnd), d.Applied, d.Capacity, d.At, err, want.applied, want.capacity)
				}
			}
		}
	}
}

// TestRetryAfterEndsWithTheOverride checks that a refusal by an override of a day says to retry at the override's end.
func TestRetryAfterEndsWithTheOverride(t *testing.T) {
	var clock manualClock
	clock.micros.Store(time.Now().UnixMicro())
	s := memory.New(&memory.Config{Clock: clock.now})
	c := open(t, s)
	mustSet(t, c, define(t, "login", "token-bucket 100/s"))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{
		Limit: limit(t, "login", "fixed-window 1/1d"), Key: "bob", Until: time.UnixMicro(clock.now() + 10_000_000),
	}))
	l := headgate.New(s, &headgate.Config{Names: c, Clock: clock.now})
	take(t, l, "login", "bob")
	if d := take(t, l, "login", "bob"); d.Allowed || d.RetryAfter != 10*time.Second {
		t.Errorf("got %+v, want a refusal for 10 s", d)
	}
	d, err := l.Take(t.Context(), headgate.Charge{
		Limit: headgate.MustNamed("login"), Key: "bob", Cost: headgate.Units(5),
	})
	if err != nil || d.Allowed || d.RetryAfter != 10*time.Second {
		t.Errorf("a cost above the override: got %+v, %v; want a refusal for 10 s", d, err)
	}
	clock.micros.Add(10_000_000)
	if d := take(t, l, "login", "bob"); !d.Allowed {
		t.Errorf("after the end of the override: got %+v, want it admitted", d)
	}
}
