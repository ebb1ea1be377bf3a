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

// lookupCountingStore is a store that counts the calls of Items, by which a catalog looks up keys. While silent is set,
// such a call does not return before its context ends.
type lookupCountingStore struct {
	store.Store
	store.Catalog
	store.Inspector
	silent  *atomic.Bool
	lookups *atomic.Int64
}

func newLookupCountingStore() lookupCountingStore {
	m := memory.New(nil)
	c, _ := store.As[store.Catalog](m)
	i, _ := store.As[store.Inspector](m)
	return lookupCountingStore{m, c, i, new(atomic.Bool), new(atomic.Int64)}
}

func (s lookupCountingStore) Items(ctx context.Context, list []store.Item) (int64, []store.Item, error) {
	s.lookups.Add(1)
	if s.silent.Load() {
		<-ctx.Done()
		return 0, nil, fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())
	}
	return s.Catalog.Items(ctx, list)
}

// openCatalog reads the catalog of a store, and sets in it the limit of each name with an override for one key.
func openCatalog(t *testing.T, s store.Store, notations map[string]string) *catalog.Catalog {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	for name, notation := range notations {
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

// silentNames is a Names that returns only when the context ends, with the context's error alone.
type silentNames struct{}

func (silentNames) Find(ctx context.Context, _, _ string) (headgate.Limit, error) {
	<-ctx.Done()
	return headgate.Limit{}, ctx.Err()
}

func (silentNames) FindAll(ctx context.Context, _ []headgate.Charge) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestTimeoutIncludesTheLookup checks that Config.Timeout bounds the lookup of a limit in a catalog or a Names that
// does not answer, and that the error says that nothing was charged.
func TestTimeoutIncludesTheLookup(t *testing.T) {
	charge := func(name string) headgate.Charge {
		return headgate.Charge{Limit: headgate.MustNamed(name), Key: "k"}
	}
	for _, tt := range []struct {
		timeout, ctxTimeout time.Duration // ctxTimeout 0: the context has no deadline
		want                time.Duration // the duration of the call
		namesSetting        bool          // the error names Config.Timeout
	}{
		{timeout: 0, want: headgate.DefaultTimeout, namesSetting: true},
		{timeout: time.Second, ctxTimeout: time.Minute, want: time.Second, namesSetting: true},
		{timeout: 0, ctxTimeout: time.Second, want: time.Second},
		{timeout: -1, ctxTimeout: time.Second, want: time.Second},
	} {
		for _, silent := range []string{"catalog", "names"} {
			synctest.Test(t, func(t *testing.T) {
				s := newLookupCountingStore()
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
				for name, call := range nonWaitingCallsFor(l, charge("api"), charge("org"), charge("jobs")) {
					if name == "List" {
						continue // List looks up no limits
					}
					ctx, cancel := context.WithCancel(t.Context())
					if tt.ctxTimeout > 0 {
						ctx, cancel = context.WithTimeout(ctx, tt.ctxTimeout)
					}
					begin := time.Now()
					err := call(ctx)
					cancel()
					if took := time.Since(begin); took != tt.want || !errors.Is(err, context.DeadlineExceeded) ||
						!errors.Is(err, store.ErrUnavailable) || !store.NothingDone(err) {
						t.Errorf("%s, %s silent, timeout %s, context %s: %v after %s, want that nothing was done after %s",
							name, silent, tt.timeout, tt.ctxTimeout, err, took, tt.want)
					}
					namesSetting := strings.Contains(fmt.Sprint(err), "Timeout of headgate.Config")
					if namesSetting != tt.namesSetting {
						t.Errorf("%s, %s silent: %v; the error names the setting: %v, want %v", name, silent, err,
							namesSetting, tt.namesSetting)
					}
				}
			})
		}
	}
}

// TestLookupOfAWaitEndsWithTheContext checks that a lookup for Wait or Await ends with the context, not at the Timeout.
func TestLookupOfAWaitEndsWithTheContext(t *testing.T) {
	for _, name := range []string{"api", "jobs", "api of a catalog", "jobs of a catalog"} {
		synctest.Test(t, func(t *testing.T) {
			s := newLookupCountingStore()
			var names headgate.Names = silentNames{}
			limit, _, hasCatalog := strings.Cut(name, " ")
			if hasCatalog {
				c := openCatalog(t, s, map[string]string{"api": "token-bucket 1/s", "jobs": "concurrency 10 ttl 30s"})
				defer c.Close()
				names = c
			}
			s.silent.Store(true)
			l := headgate.New(s, &headgate.Config{Names: names})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begin := time.Now()
			wait := l.Wait
			if limit == "jobs" {
				wait = func(ctx context.Context, c ...headgate.Charge) error {
					_, err := l.Await(ctx, c...)
					return err
				}
			}
			err := wait(ctx, headgate.Charge{Limit: headgate.MustNamed(limit), Key: "k"})
			if took := time.Since(begin); took != time.Minute || !errors.Is(err, context.DeadlineExceeded) ||
				!errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: %v after %s, want the context's deadline after a minute", name, err, took)
			}
		})
	}
}

// staleAnswersStore is a store that answers every op after two seconds as stale: its time then lies outside the period
// in which the op's limit is in force.
type staleAnswersStore struct {
	store.Store
	store.Inspector
}

func (staleAnswersStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
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

// TestTimeoutCoversAllAttempts checks that retries with another limit share one Timeout.
func TestTimeoutCoversAllAttempts(t *testing.T) {
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
		s := newLookupCountingStore()
		l := headgate.New(staleAnswersStore{s, s}, nil)
		charge, job := headgate.Charge{Limit: limit, Key: "k"}, headgate.Charge{Limit: jobs, Key: "k"}
		for name, call := range nonWaitingCallsFor(l, charge, charge, job) {
			switch name {
			case "List", "Renew", "Release", "Once.Settle", "Once.Cancel":
				continue // these calls are not retried with another limit
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

// TestBatchLooksUpNamesTogether checks that 100 requests need few lookups, and that unknown names fail alone.
func TestBatchLooksUpNamesTogether(t *testing.T) {
	s := newLookupCountingStore()
	c := openCatalog(t, s, map[string]string{"api": "token-bucket 100/h", "org": "token-bucket 200/h"})
	l := headgate.New(s, &headgate.Config{Names: c})
	for _, tt := range []struct {
		name       string
		unknown    map[int]bool // indexes of requests with an unknown name
		maxLookups int64
	}{
		{"all are known", nil, 1},
		{"one is unknown", map[int]bool{37: true}, 8}, // bisection: at most 100, 50, 25, 13, 7, 4, 2 and 1 requests
	} {
		s.lookups.Store(0)
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
				t.Errorf("%s: request %d: got %+v, want an error: %v", tt.name, i, a, tt.unknown[i])
			}
			if a.Err == nil && i != 5 && (len(a.Decision.Each) != 2 || a.Decision.Each[1].Capacity != 200) {
				t.Errorf("%s: request %d: got %+v, want a capacity of 200 for org", tt.name, i, a.Decision)
			}
		}
		if n := s.lookups.Load(); n < 1 || n > tt.maxLookups {
			t.Errorf("%s: %d lookups, want 1 to %d", tt.name, n, tt.maxLookups)
		}
		if !requests[0].Charges[0].Limit.OnlyName() {
			t.Errorf("%s: the caller's charge was changed", tt.name)
		}
	}
}

// clockPerKeyStore is a store with a clock for each key, as if each key lay on another server.
type clockPerKeyStore struct {
	store.Store
	clocks map[string]int64 // the time of each key, in microseconds
}

func (s clockPerKeyStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	for i := range ops {
		ops[i].Now = s.clocks[ops[i].Cell.Key]
	}
	return s.Store.Apply(ctx, ops, outs)
}

// TestEachChargeIsDecidedByTheLimitOfItsCellsTime charges two cells, whose times lie before and after the change of a
// limit. The clocks of their servers differ, or the second cell is ahead of a clock that was set back.
func TestEachChargeIsDecidedByTheLimitOfItsCellsTime(t *testing.T) {
	const change = int64(4_000_000_000_000_000) // the time at which the capacity of api changes, in microseconds
	api := parseNamed(t, "api", "token-bucket 100/h")
	api, err := api.Until(time.UnixMicro(change), parseNamed(t, "api", "token-bucket 200/h"))
	if err != nil {
		t.Fatal(err)
	}
	var clock atomic.Int64
	setBackStore := memory.New(&memory.Config{Clock: clock.Load})
	oldCharge, newCharge := headgate.Charge{Limit: api, Key: "old"}, headgate.Charge{Limit: api, Key: "new"}
	for name, s := range map[string]store.Store{
		"two clocks":        clockPerKeyStore{memory.New(nil), map[string]int64{"old": change - 1, "new": change}},
		"a clock, set back": setBackStore,
	} {
		for guess, localTime := range map[string]int64{"before": change - 10, "after": change + 10} {
			l := headgate.New(s, &headgate.Config{Clock: func() int64 { return localTime }})
			if s == setBackStore {
				clock.Store(change + 100_000)
				if _, err := l.Allow(t.Context(), api, "new"); err != nil {
					t.Fatal(err)
				}
				clock.Store(change - 100_000)
			}
			checkCapacities := func(verb string, list []headgate.ChargeDecision, err error) {
				t.Helper()
				if err != nil || len(list) != 2 || list[0].Capacity != 100 || list[1].Capacity != 200 {
					t.Errorf("%s, guess %s, %s: %+v, %v; want capacities of 100 and 200", name, guess, verb, list, err)
				}
			}
			d, err := l.Take(t.Context(), oldCharge, newCharge)
			checkCapacities("take", d.Each, err)
			d, err = l.Once(guess, time.Hour).Take(t.Context(), oldCharge, newCharge)
			checkCapacities("once", d.Each, err)
			answers, err := l.Batch(t.Context(), []headgate.Request{{Charges: []headgate.Charge{oldCharge, newCharge}}})
			if err != nil {
				t.Fatal(err)
			}
			checkCapacities("batch", answers[0].Decision.Each, answers[0].Err)
		}
	}
}
