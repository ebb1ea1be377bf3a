package front_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/front/coalesce"
	"github.com/headgate/headgate/internal/front/deny"
	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/prefetch"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/storetest"
)

// wrappers has functions that put one wrapper around a store. TestConformance has them all at once.
var wrappers = map[string]func(store.Store) store.Store{
	"deny":     func(s store.Store) store.Store { return deny.New(s) },
	"prefetch": func(s store.Store) store.Store { return prefetch.New(s) },
	"guard": func(s store.Store) store.Store {
		return guard.New(s, &guard.Config{Deadline: time.Minute, Logger: slog.New(slog.DiscardHandler)})
	},
	"coalesce": func(s store.Store) store.Store { return coalesce.New(s, nil) },
	"coalesce with one flight": func(s store.Store) store.Store {
		return coalesce.New(s, &coalesce.Config{Flights: 1})
	},
}

// runEach runs a suite with each wrapper around a store in memory.
func runEach(t *testing.T, suite func(*testing.T, storetest.Open, *storetest.Options), o *storetest.Options) {
	for name, wrap := range wrappers {
		t.Run(name, func(t *testing.T) {
			suite(t, func(testing.TB) store.Store { return wrap(newMemory()) }, o)
		})
	}
}

func TestHistoriesOfEachWrapper(t *testing.T) {
	runEach(t, storetest.RunHistories, &storetest.Options{Histories: 100})
}

func TestConformanceOfEachWrapper(t *testing.T) {
	tier.Engines(t)
	runEach(t, storetest.Run, nil)
}
