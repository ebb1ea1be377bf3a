package service_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/mysql"
	"github.com/headgate/headgate/store/postgres"
	"github.com/headgate/headgate/store/redis"
)

// newCatalogService returns a service over a store with a catalog of limits, and the catalog.
func newCatalogService(t *testing.T, s store.Store, limits map[string]string) (*service.Service, *catalog.Catalog) {
	t.Helper()
	c, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var list []catalog.Definition
	for name, notation := range limits {
		l, err := headgate.ParseNamed(name, notation)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, catalog.Definition{Limit: l})
	}
	if _, err := c.Set(t.Context(), catalog.By{Author: "ann"}, list...); err != nil {
		t.Fatal(err)
	}
	l := headgate.New(s, &headgate.Config{Names: c, Timeout: time.Minute}) // a database may be slow at first
	return service.New(l, &config.Config{}, c), c
}

// usage returns the usage of a key, and its limits by name.
func usage(t *testing.T, s *service.Service, q api.UsageQuery) (*api.Usage, map[string]api.LimitUsage) {
	t.Helper()
	maxLimits := -1
	u, err := s.Usage(t.Context(), &q, func(n int) error { maxLimits = n; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if u.Key != q.Key || u.Refusals == nil || len(u.Limits) > maxLimits {
		t.Fatalf("hold was called with %d limits, and the usage is %+v", maxLimits, u)
	}
	limits := map[string]api.LimitUsage{}
	for _, l := range u.Limits {
		limits[l.Limit] = l
	}
	return u, limits
}

func take(t *testing.T, s *service.Service, limit, key string) {
	t.Helper()
	r := &api.Request{Charge: api.Charge{Limit: limit, Key: key}}
	if _, err := s.Take(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

// TestUsageSaysWhyAKeyIsRefused checks the usage of keys that are refused for several reasons, for several stores.
func TestUsageSaysWhyAKeyIsRefused(t *testing.T) {
	t.Parallel()
	type kind struct {
		name string
		open func() (store.Store, error)
	}
	kinds := []kind{
		{"memory", func() (store.Store, error) { return memory.New(&memory.Config{Names: true}), nil }},
		{"postgres", func() (store.Store, error) { return postgres.Open(t.Context(), migrated.Postgres(t), nil) }},
		{"mysql", func() (store.Store, error) { return mysql.Open(t.Context(), migrated.MariaDB(t), nil) }},
		{"redis", func() (store.Store, error) { return redis.Open(t.Context(), dbtest.Redis(t), nil) }},
	}
	for _, kind := range tier.Pick(kinds[:2], kinds, kinds) {
		inner, err := kind.open()
		if err != nil {
			t.Fatal(err)
		}
		s := front.New(inner, &front.Config{SweepEvery: -1, Guard: &front.GuardConfig{Deadline: time.Minute}})
		t.Cleanup(func() { s.Close() })
		t.Run(kind.name, func(t *testing.T) { t.Parallel(); testUsageOfRefusedKeys(t, s) })
	}
}

func testUsageOfRefusedKeys(t *testing.T, st store.Store) {
	s, c := newCatalogService(t, st, map[string]string{
		"api": "fixed-window 2/1d from-first", "login": "sliding-log 1/1h block 15m", "jobs": "concurrency 1 ttl 1h",
	})
	end := time.Now().Add(48 * time.Hour).Truncate(time.Microsecond)
	closedLimit, err := headgate.ParseNamed("api", "0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Override(t.Context(), catalog.By{Author: "eve"}, catalog.Override{
		Limit: closedLimit, Key: "-off", Until: end, Reason: "has not paid",
	}); err != nil {
		t.Fatal(err)
	}
	block := func(key, reason string) {
		if _, err := s.Block(t.Context(), &api.Block{
			Subject: api.Subject{Limit: "login", Key: key}, For: "1h", Reason: reason,
		}); err != nil {
			t.Fatal(err)
		}
	}
	block("blocked", "guesses passwords")
	block("silent", "") // for an hour, which is longer than the limit itself blocks
	for range 2 {
		take(t, s, "login", "used")
		take(t, s, "api", "used")
	}
	if _, err := s.Acquire(t.Context(), &api.Request{Charge: api.Charge{Limit: "jobs", Key: "used"}}); err != nil {
		t.Fatal(err)
	}
	take(t, s, "fixed-window 5/1h from-first", "used")
	cellsBefore, err := s.Cells(t.Context(), &api.CellsQuery{})
	if err != nil {
		t.Fatal(err)
	}

	_, unused := usage(t, s, api.UsageQuery{Key: "nobody"})
	if len(unused) != 3 {
		t.Errorf("a key that has used nothing: got %+v, want 3 limits", unused)
	}
	for limit, l := range unused {
		if l.Exists || l.Used != "0" || l.Hint != "" || l.BlockedBy != "" || *l.RetryAfterMS != 0 || l.ResetAfterMS != 0 {
			t.Errorf("a key that has used nothing: %s: %+v", limit, l)
		}
	}
	_, blocked := usage(t, s, api.UsageQuery{Key: "blocked"})
	if l := blocked["login"]; l.BlockedBy != api.ByOperator || l.Reason != "guesses passwords" || l.Remaining != "0" ||
		l.BlockedUntil == nil || *l.RetryAfterMS < 3_000_000 || *l.RetryAfterMS > 3_600_000 ||
		!strings.HasSuffix(l.Hint, ", or lift the block: headgate block --for 0 blocked login") {
		t.Errorf("blocked: %+v", l)
	}
	_, silent := usage(t, s, api.UsageQuery{Key: "silent", Limits: []string{"login"}})
	if l := silent["login"]; len(silent) != 1 || l.BlockedBy != api.ByOperator || l.Reason != "" {
		t.Errorf("blocked without a reason: %+v", silent)
	}
	_, closed := usage(t, s, api.UsageQuery{Key: "-off", Authors: true})
	if l := closed["api"]; l.Applied != "override" || l.AppliedUntil == nil || *l.AppliedUntil != end.UnixMicro() ||
		l.AppliedReason != "has not paid" || !strings.HasPrefix(l.AppliedBy, "eve") || l.Rule != "0" ||
		!strings.HasSuffix(l.Hint, ", or raise the limit for this key: headgate override -- -off api 'NEW LIMIT'") {
		t.Errorf("with an override: %+v", l)
	}
	if _, withoutAuthors := usage(t, s, api.UsageQuery{Key: "-off"}); withoutAuthors["api"].AppliedBy != "" {
		t.Errorf("without authors: %+v", withoutAuthors["api"])
	}
	u, used := usage(t, s, api.UsageQuery{Key: "used"})
	if l := used["login"]; l.Used != "1" || l.BlockedBy != api.ByLimit ||
		!strings.HasSuffix(l.Hint, ", or forget the block and what was used: headgate reset used login") {
		t.Errorf("blocked by the limit: %+v", l)
	}
	if l := used["api"]; l.Used != "2" || l.Remaining != "0" || l.ResetAfterMS < *l.RetryAfterMS || *l.RetryAfterMS <= 0 ||
		!strings.HasPrefix(l.Hint, "wait ") || !strings.Contains(l.Hint, "headgate override used api 'NEW LIMIT'") {
		t.Errorf("used up: %+v", l)
	}
	if l := used["jobs"]; l.Used != "1" || !strings.HasPrefix(l.Hint, "wait until something is released, ") {
		t.Errorf("held: %+v", l)
	}
	if l := used["fixed-window 5/1h from-first"]; len(used) != 4 || l.Remaining != "4" || l.Hint != "" {
		t.Errorf("a notation: %+v", used)
	}
	if len(u.Refusals) != 1 || u.Refusals[0].Limit != "login" || u.Refusals[0].Cost != "1" {
		t.Errorf("refusals: %+v", u.Refusals)
	}
	cellsAfter, err := s.Cells(t.Context(), &api.CellsQuery{})
	if err != nil || len(cellsAfter.Cells) != len(cellsBefore.Cells) {
		t.Fatalf("%d keys before, %d after, %v", len(cellsBefore.Cells), len(cellsAfter.Cells), err)
	}
	for i, cell := range cellsAfter.Cells {
		if cell.Used != cellsBefore.Cells[i].Used {
			t.Errorf("usage charged: got %+v, want %+v", cell, cellsBefore.Cells[i])
		}
	}
}

// TestUsageWithoutACatalogListsTheCells checks that usage lists the limits of a key's cells, also after a restart.
func TestUsageWithoutACatalogListsTheCells(t *testing.T) {
	t.Parallel()
	st := memory.New(&memory.Config{Names: true})
	newService := func() *service.Service { return service.New(headgate.New(st, nil), &config.Config{}, nil) }
	s := newService()
	for _, limit := range []string{"fixed-window 2/1h from-first", "sliding-log 1/1h"} {
		take(t, s, limit, "k")
		take(t, s, limit, "l")
	}
	if _, used := usage(t, newService(), api.UsageQuery{Key: "k"}); len(used) != 2 ||
		used["fixed-window 2/1h from-first"].Used != "1" || !strings.HasSuffix(used["sliding-log 1/1h"].Hint,
		", or forget what was used: headgate reset k 'sliding-log 1/1h'") {
		t.Errorf("k: got %+v, want 2 limits with a hint", used)
	}
	if _, used := usage(t, newService(), api.UsageQuery{Key: "nobody"}); len(used) != 0 {
		t.Errorf("nobody: got %+v, want no limits", used)
	}
	if _, used := usage(t, newService(), api.UsageQuery{Key: "n", Limits: []string{"5/1m"}}); len(used) != 1 {
		t.Errorf("a query of an unused limit: got %+v, want the limit", used)
	}
}

func TestUsageCallsHoldBeforeItReads(t *testing.T) {
	t.Parallel()
	s, _ := newCatalogService(t, memory.New(nil), map[string]string{"a": "5/1m", "b": "5/1m", "c": "5/1m"})
	errFull := errors.New("full")
	_, err := s.Usage(t.Context(), &api.UsageQuery{Key: "k"}, func(n int) error {
		if n != 3 {
			t.Errorf("hold was called with %d, want 3", n)
		}
		return errFull
	})
	if !errors.Is(err, errFull) {
		t.Errorf("got %v, want the error of hold", err)
	}
	_, err = s.Usage(t.Context(), &api.UsageQuery{Key: "k", Limits: []string{"d"}}, func(int) error { return nil })
	if !errors.Is(err, headgate.ErrUnknownLimit) || service.ProblemOf(err).Field != "limit" {
		t.Errorf("an unknown limit: %v", err)
	}
}

// TestUsageHasTheRefusalsOfVerbs checks the refusals of several verbs. A check has none, since it refuses nobody.
func TestUsageHasTheRefusalsOfVerbs(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil)
	const limit, leaseLimit = "fixed-window 2/1h from-first", "concurrency 1 ttl 1m"
	request := api.Request{Charge: api.Charge{Limit: limit, Key: "k", Cost: "2"}}
	jobs := api.Request{Charge: api.Charge{Limit: leaseLimit, Key: "k"}}
	twoCharges := api.Request{Charges: []api.Charge{
		{Limit: limit, Key: "other"}, {Limit: limit, Key: "k", Cost: "1.5"},
	}}
	check := request
	check.Check = true
	ctx := t.Context()
	send := map[string]func() error{
		"take":    func() error { _, err := s.Take(ctx, &request); return err },
		"check":   func() error { _, err := s.Check(ctx, &request); return err },
		"fill-up": func() error { _, err := s.FillUp(ctx, &request); return err },
		"reserve": func() error { _, err := s.Reserve(ctx, &api.Reserve{Request: request}); return err },
		"acquire": func() error { _, err := s.Acquire(ctx, &jobs); return err },
		"several": func() error { _, err := s.Take(ctx, &twoCharges); return err },
		"batch": func() error {
			_, err := s.Batch(ctx, &api.Batch{Requests: []api.Request{request, check, request}}, func(error) {})
			return err
		},
		"headroom": func() error {
			_, err := s.Take(ctx, &api.Request{Charge: api.Charge{Limit: limit, Key: "k", Keep: "25%"}})
			return err
		},
		"never": func() error {
			_, err := s.Take(ctx, &api.Request{Charge: api.Charge{Limit: limit, Key: "k", Cost: "3"}})
			return err
		},
	}
	for _, verb := range []string{"take", "acquire"} {
		if err := send[verb](); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for _, step := range []struct {
		verb     string
		refusals []string
	}{
		{"take", []string{limit + " 2"}},
		{"check", nil},
		{"fill-up", []string{limit + " 2"}},
		{"reserve", []string{limit + " 2"}},
		{"acquire", []string{leaseLimit + " 1"}},
		{"several", []string{limit + " 1.5"}},
		{"batch", []string{limit + " 2", limit + " 2"}},
		{"headroom", []string{limit + " 1 keep 25%"}},
		{"never", []string{limit + " 3 never"}},
	} {
		if err := send[step.verb](); err != nil {
			t.Fatal(step.verb, err)
		}
		want = append(slices.Clone(step.refusals), want...)
		u, _ := usage(t, s, api.UsageQuery{Key: "k"})
		var got []string
		for _, r := range u.Refusals {
			text := r.Limit + " " + r.Cost.String()
			if r.Keep != "" {
				text += " keep " + r.Keep
			}
			if r.RetryAfterMS == nil {
				text += " never"
			}
			if got = append(got, text); r.At == 0 {
				t.Errorf("%s: %+v", step.verb, r)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", step.verb, got, want)
		}
	}
	if u, _ := usage(t, s, api.UsageQuery{Key: "other"}); len(u.Refusals) != 0 {
		t.Errorf("a charge that would have passed: got %+v, want no refusals", u.Refusals)
	}
}

// TestOldRefusalsAreForgotten checks that 1000 of 1 + 30 + 990 refusals are kept, so the first 21 are forgotten.
func TestOldRefusalsAreForgotten(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil)
	refuse := func(ctx context.Context, key string) {
		d, err := s.Take(ctx, &api.Request{Charge: api.Charge{Limit: "0", Key: key}})
		if err != nil || d.Allowed {
			t.Errorf("got %+v, %v, want a refusal", d, err)
		}
	}
	count := func(key string) int {
		u, _ := usage(t, s, api.UsageQuery{Key: key})
		return len(u.Refusals)
	}
	refuse(t.Context(), "first")
	for range 30 {
		refuse(t.Context(), "often")
	}
	if n := count("first"); n != 1 {
		t.Errorf("%d refusals are remembered, want 1", n)
	}
	if n := count("often"); n != 20 {
		t.Errorf("%d refusals are shown, want 20", n)
	}
	var wg sync.WaitGroup
	for n := range 10 {
		wg.Go(func() {
			for i := range 99 {
				refuse(t.Context(), fmt.Sprint("key ", n, i))
			}
		})
	}
	wg.Wait()
	if first, often := count("first"), count("often"); first != 0 || often != 10 {
		t.Errorf("got %d refusals of the first key, %d of the second, want 0 and 10", first, often)
	}
}
