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
type manualClock struct{ at atomic.Int64 }

func (h *manualClock) now() int64 { return h.at.Load() }

// TestAnOverrideEndsByTheStoresClock makes requests from two nodes with wrong clocks, a microsecond
// before the end of an override and at its end.
func TestAnOverrideEndsByTheStoresClock(t *testing.T) {
	var clock manualClock
	clock.at.Store(time.Now().UnixMicro())
	s := memory.New(&memory.Config{Clock: clock.now})
	c := open(t, s)
	set(t, c, limit(t, "login", "token-bucket 1/1h burst 1000"), limit(t, "jobs", "concurrency 1000 ttl 1h"))
	mustSucceed(t)(c.SetPlans(t.Context(), admin, catalog.Plan{
		Name: "pro", Limits: []headgate.Limit{named(t, "login", "token-bucket 1/1h burst 2000")},
	}))
	end := time.UnixMicro(clock.now() + 10_000_000)
	later := end.Add(10 * time.Second)
	mustSucceed(t)(c.Assign(t.Context(), admin, catalog.Assignment{Plan: "pro", Key: "bob", Until: later}))
	mustSucceed(t)(c.Override(t.Context(), admin,
		catalog.Override{Limit: named(t, "login", "fixed-window 3000/1h"), Key: "bob", Until: end},
		catalog.Override{Limit: named(t, "jobs", "concurrency 3000 ttl 1h"), Key: "bob", Until: end}))

	charge := headgate.Charge{Limit: headgate.MustNamed("login"), Key: "bob"}
	job := headgate.Charge{Limit: headgate.MustNamed("jobs"), Key: "bob"}
	other := headgate.Charge{Limit: headgate.MustNamed("login"), Key: "other"}
	asks := map[string]func(l *headgate.Limiter) (headgate.Decision, error){
		"take":  func(l *headgate.Limiter) (headgate.Decision, error) { return l.Take(t.Context(), charge) },
		"check": func(l *headgate.Limiter) (headgate.Decision, error) { return l.Check(t.Context(), charge) },
		"two": func(l *headgate.Limiter) (headgate.Decision, error) {
			d, err := l.Take(t.Context(), charge, other)
			if err == nil {
				d.Applied, d.Capacity = d.Each[0].Applied, d.Each[0].Capacity
			}
			return d, err
		},
		"once": func(l *headgate.Limiter) (headgate.Decision, error) {
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
				t.Errorf("the other one of the batch: %+v", list[1])
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
	for name, ask := range asks {
		for _, at := range []struct {
			moment   time.Time
			capacity int64
			applied  string
		}{
			{end.Add(-time.Microsecond), 3000, "override"},
			{end, 2000, "plan pro"},
			{later.Add(-time.Microsecond), 2000, "plan pro"},
			{later, 1000, ""},
		} {
			for _, wrong := range []time.Duration{0, -time.Hour, 15 * time.Second, -5 * time.Second} {
				clock.at.Store(at.moment.UnixMicro())
				l := headgate.New(map[bool]store.Store{true: wrappers, false: s}[wrong == 0], &headgate.Config{
					Names: c, Clock: func() int64 { return clock.now() + wrong.Microseconds() },
				})
				for _, key := range []string{charge.Key, other.Key} { // their cells may be ahead of the clock
					if _, err := l.Reset(t.Context(), charge.Limit, key); err != nil {
						t.Fatal(err)
					}
				}
				d, err := ask(l)
				if name == "acquire" && at.applied == "plan pro" {
					at.applied, at.capacity = "", 1000
				}
				if err != nil || d.Applied != at.applied || d.Capacity != at.capacity ||
					!d.At.Equal(at.moment) && name != "acquire" {
					t.Errorf("%s, the node's clock %s off, at %s: %q, %d, at %s, %v; want %q, %d", name, wrong, at.moment.Sub(end),
						d.Applied, d.Capacity, d.At.Sub(end), err, at.applied, at.capacity)
				}
			}
		}
	}
}

// TestARefusalLastsNoLongerThanItsLimit repeats a refused request after another limit has come into force.
func TestARefusalLastsNoLongerThanItsLimit(t *testing.T) {
	var clock manualClock
	clock.at.Store(time.Now().UnixMicro())
	s := memory.New(&memory.Config{Clock: clock.now})
	c := open(t, s)
	set(t, c, limit(t, "login", "token-bucket 100/s"))
	mustSucceed(t)(c.Override(t.Context(), admin, catalog.Override{
		Limit: named(t, "login", "fixed-window 1/1d"), Key: "bob", Until: time.UnixMicro(clock.now() + 10_000_000),
	}))
	l := headgate.New(s, &headgate.Config{Names: c, Clock: clock.now})
	take(t, l, "login", "bob")
	if d := take(t, l, "login", "bob"); d.Allowed || d.RetryAfter != 10*time.Second {
		t.Errorf("%+v, want a refusal for 10 s", d)
	}
	d, err := l.Take(t.Context(), headgate.Charge{
		Limit: headgate.MustNamed("login"), Key: "bob", Cost: headgate.Units(5),
	})
	if err != nil || d.Allowed || d.RetryAfter != 10*time.Second {
		t.Errorf("more than the override ever lets pass: %+v, %v; want a refusal for 10 s", d, err)
	}
	clock.at.Add(10_000_000)
	if d := take(t, l, "login", "bob"); !d.Allowed {
		t.Errorf("after the end: %+v", d)
	}
}
