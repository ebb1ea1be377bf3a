package headgate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// lookupCounter is a store that counts the lookups of single keys. While silent is set, it does not answer before the
// context ends.
type lookupCounter struct {
	store.Store
	store.Catalog
	store.Inspector
	silent *atomic.Bool
	asked  *atomic.Int64
}

func newLookupCounter() lookupCounter {
	m := memory.New(nil)
	c, _ := store.As[store.Catalog](m)
	i, _ := store.As[store.Inspector](m)
	return lookupCounter{m, c, i, new(atomic.Bool), new(atomic.Int64)}
}

func (k lookupCounter) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	k.asked.Add(1)
	if k.silent.Load() {
		<-ctx.Done()
		return 0, nil, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return k.Catalog.Items(ctx, list)
}

// openCatalog opens the catalog of a store, with limits of these names and an override of each.
func openCatalog(t *testing.T, s store.Store, limits map[string]string) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	for name, notation := range limits {
		var l headgate.Limit
		if err == nil {
			l, err = headgate.ParseNamed(name, notation)
		}
		if err == nil {
			_, err = c.Set(t.Context(), catalog.By{}, catalog.Definition{Limit: l})
		}
		if err == nil {
			_, err = c.Override(t.Context(), catalog.By{}, catalog.Override{Limit: l, Key: "somebody"})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// silentNames is a Names that answers only when the context ends, with an error without a class.
type silentNames struct{}

func (silentNames) Find(ctx context.Context, _, _ string) (headgate.Limit, error) {
	<-ctx.Done()
	return headgate.Limit{}, ctx.Err()
}

func (silentNames) FindAll(ctx context.Context, _ []headgate.Charge) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestTheTimeoutIncludesTheLookup looks up limits by their names in a catalog or a Names that does not answer. The
// error says that nothing was charged.
func TestTheTimeoutIncludesTheLookup(t *testing.T) {
	named := func(name string) headgate.Charge {
		return headgate.Charge{Limit: headgate.MustNamed(name), Key: "k"}
	}
	for _, tt := range []struct {
		timeout, context time.Duration // context 0: no deadline
		want             time.Duration
		named            bool
	}{
		{timeout: 0, want: headgate.DefaultTimeout, named: true},
		{timeout: time.Second, context: time.Minute, want: time.Second, named: true},
		{timeout: 0, context: time.Second, want: time.Second},
		{timeout: -1, context: time.Second, want: time.Second},
	} {
		for _, silent := range []string{"catalog", "names"} {
			synctest.Test(t, func(t *testing.T) {
				s := newLookupCounter()
				var names headgate.Names = silentNames{}
				if silent == "catalog" {
					c := openCatalog(t, s, map[string]string{
						"api": "token-bucket 1/s", "org": "gcra 1/s", "jobs": "concurrency 10 ttl 30s",
					})
					defer c.Close()
					names = c
				}
				s.silent.Store(true)
				l := headgate.New(s, &headgate.Config{Timeout: tt.timeout, Names: names})
				for name, call := range callsOf(l, named("api"), named("org"), named("jobs")) {
					if name == "List" {
						continue // which finds no limits
					}
					ctx, cancel := context.WithCancel(t.Context())
					if tt.context > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.context)
					}
					begin := time.Now()
					err := call(ctx)
					cancel()
					if took := time.Since(begin); took != tt.want || !errors.Is(err, context.DeadlineExceeded) ||
						!errors.Is(err, store.ErrUnavailable) || !store.NothingDone(err) {
						t.Errorf("%s, %s silent, timeout %s, context %s: %v after %s, want that nothing was done after %s",
							name, silent, tt.timeout, tt.context, err, took, tt.want)
					}
					if named := strings.Contains(fmt.Sprint(err), "Timeout of headgate.Config"); named != tt.named {
						t.Errorf("%s, %s silent: %v; the setting is named: %v, want %v", name, silent, err, named, tt.named)
					}
				}
			})
		}
	}
}

// TestWaitingIncludesTheLookup checks that a lookup for a waiting call lasts until the context ends, not until the
// Timeout.
func TestWaitingIncludesTheLookup(t *testing.T) {
	for _, limit := range []string{"api", "jobs", "api of a catalog", "jobs of a catalog"} {
		synctest.Test(t, func(t *testing.T) {
			s := newLookupCounter()
			var names headgate.Names = silentNames{}
			limit, _, kept := strings.Cut(limit, " ")
			if kept {
				c := openCatalog(t, s, map[string]string{"api": "token-bucket 1/s", "jobs": "concurrency 10 ttl 30s"})
				defer c.Close()
				names = c
			}
			s.silent.Store(true)
			l := headgate.New(s, &headgate.Config{Names: names})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin, charge := time.Now(), headgate.Charge{Limit: headgate.MustNamed(limit), Key: "k"}
			wait := l.Wait
			if limit == "jobs" {
				wait = func(ctx context.Context, c ...headgate.Charge) error {
					_, err := l.Await(ctx, c...)
					return err
				}
			}
			err := wait(ctx, charge)
			if took := time.Since(begin); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v after %s, want the context's deadline after a minute", limit, err, took)
			}
		})
	}
}

// swayingClockStore is a store whose answers take two seconds, and whose time never lies in the period for which an op
// holds.
type swayingClockStore struct {
	store.Store
	store.Inspector
}

func (swayingClockStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnknownOutcome, ctx.Err())
	case <-time.After(2 * time.Second):
	}
	for i := range ops {
		outs[i] = law.Outcome{Stale: true, Clock: ops[i].Until}
		if ops[i].From != 0 {
			outs[i].Clock = ops[i].From - 1
		}
	}
	return nil
}

// TestTheTimeoutCoversAllAttempts checks calls that are retried with the limit of another time.
func TestTheTimeoutCoversAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := parseNamed(t, "api", "token-bucket 1/s")
		limit, err := limit.Until(time.Now().Add(time.Minute), parseNamed(t, "api", "gcra 5/s"))
		if err != nil {
			t.Fatal(err)
		}
		jobs := parseNamed(t, "jobs", "concurrency 10 ttl 30s")
		next := parseNamed(t, "jobs", "concurrency 20 ttl 30s")
		if jobs, err = jobs.Until(time.Now().Add(time.Minute), next); err != nil {
			t.Fatal(err)
		}
		k := newLookupCounter()
		l := headgate.New(swayingClockStore{k, k}, nil)
		charge, job := headgate.Charge{Limit: limit, Key: "k"}, headgate.Charge{Limit: jobs, Key: "k"}
		for name, call := range callsOf(l, charge, charge, job) {
			switch name {
			case "List", "Renew", "Release", "Once.Settle", "Once.Cancel":
				continue // which ask once
			}
			begin := time.Now()
			if err := call(t.Context()); err == nil || time.Since(begin) != headgate.DefaultTimeout {
				t.Errorf("%s: %v after %s, want an error after %s", name, err, time.Since(begin), headgate.DefaultTimeout)
			}
		}
	})
}

func parseNamed(t *testing.T, name, notation string) headgate.Limit {
	t.Helper()
	l, err := headgate.ParseNamed(name, notation)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestABatchLooksUpNamesTogether counts the lookups of single keys. A request with an unknown name fails alone.
func TestABatchLooksUpNamesTogether(t *testing.T) {
	s := newLookupCounter()
	c := openCatalog(t, s, map[string]string{"api": "token-bucket 100/h", "org": "token-bucket 200/h"})
	l := headgate.New(s, &headgate.Config{Names: c})
	for _, tt := range []struct {
		name    string
		unknown map[int]bool // requests that name a limit that is not there
		most    int64
	}{
		{"all are known", nil, 1},
		{"one is not known", map[int]bool{37: true}, 8}, // halves of 100, down to 1
		{"none is known", nil, 1},
	} {
		s.asked.Store(0)
		requests := make([]headgate.Request, 100)
		for i := range requests {
			key := fmt.Sprintf("%s %d", tt.name, i)
			requests[i].Charges = []headgate.Charge{
				{Limit: headgate.MustNamed("api"), Key: key}, {Limit: headgate.MustNamed("org"), Key: key},
			}
			if tt.unknown[i] {
				requests[i].Charges[1].Limit = headgate.MustNamed("gone")
			}
		}
		requests[5].Charges = []headgate.Charge{{Limit: headgate.MustParse("token-bucket 7/h"), Key: "clear"}}
		answers, err := l.Batch(t.Context(), requests)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if tt.unknown[i] != errors.Is(a.Err, headgate.ErrUnknownLimit) || tt.unknown[i] != (a.Err != nil) {
				t.Errorf("%s: request %d: %+v", tt.name, i, a)
			}
			if a.Err == nil && i != 5 && (len(a.Decision.Each) != 2 || a.Decision.Each[1].Capacity != 200) {
				t.Errorf("%s: request %d: %+v", tt.name, i, a.Decision)
			}
		}
		if n := s.asked.Load(); n < 1 || n > tt.most {
			t.Errorf("%s: %d questions were asked, want 1 to %d", tt.name, n, tt.most)
		}
		if !requests[0].Charges[0].Limit.OnlyName() {
			t.Errorf("%s: the caller's charge was changed", tt.name)
		}
	}
}

// severalClocksStore is a store whose keys lie on servers with different clocks.
type severalClocksStore struct {
	store.Store
	at map[string]int64
}

func (s severalClocksStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	for i := range ops {
		ops[i].Now = s.at[ops[i].Cell.Key]
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestEachChargeHasTheLimitOfItsOwnTime charges two keys around the end of an override: the clocks of their servers
// differ, or one cell is ahead of its server's clock.
func TestEachChargeHasTheLimitOfItsOwnTime(t *testing.T) {
	const end = int64(4_000_000_000_000_000)
	api := parseNamed(t, "api", "token-bucket 100/h")
	api, err := api.Until(time.UnixMicro(end), parseNamed(t, "api", "token-bucket 200/h"))
	if err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	behind, before := memory.New(&memory.Config{Clock: clock.Load}), headgate.Charge{Limit: api, Key: "before"}
	after := headgate.Charge{Limit: api, Key: "after"}
	for name, s := range map[string]store.Store{
		"two clocks":        severalClocksStore{memory.New(nil), map[string]int64{"before": end - 1, "after": end}},
		"a clock, set back": behind,
	} {
		clock.Store(end + 100_000)
		for guess, here := range map[string]int64{"before": end - 10, "after": end + 10} {
			l := headgate.New(s, &headgate.Config{Clock: func() int64 { return here }})
			if s == behind {
				clock.Store(end + 100_000)
				if _, err := l.Allow(t.Context(), api, "after"); err != nil {
					t.Fatal(err)
				}
				clock.Store(end - 100_000)
			}
			check := func(verb string, list []headgate.ChargeDecision, err error) {
				t.Helper()
				if err != nil || len(list) != 2 || list[0].Capacity != 100 || list[1].Capacity != 200 {
					t.Errorf("%s, guess %s, %s: %+v, %v; want capacities of 100 and 200", name, guess, verb, list, err)
				}
			}
			d, err := l.Take(t.Context(), before, after)
			check("take", d.Each, err)
			if d, err = l.Once(guess, time.Hour).Take(t.Context(), before, after); true {
				check("once", d.Each, err)
			}
			answers, err := l.Batch(t.Context(), []headgate.Request{{Charges: []headgate.Charge{before, after}}})
			if err != nil {
				t.Fatal(err)
			}
			check("batch", answers[0].Decision.Each, answers[0].Err)
		}
	}
}
