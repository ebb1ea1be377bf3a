package redis_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(tb testing.TB, url string) *redis.Store { return openWith(tb, url, nil) }

func openWith(tb testing.TB, url string, cfg *redis.Config) *redis.Store {
	tb.Helper()
	s, err := redis.Open(context.Background(), url, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// boundedWith makes databases of limits that have so many keys at most, with tags by slot.
func boundedWith(slot func(key string) string) func(tb testing.TB, maxKeys int) storetest.Open {
	return func(tb testing.TB, maxKeys int) storetest.Open {
		url := dbtest.Redis(tb)
		return func(tb testing.TB) store.Store {
			s, err := redis.Open(context.Background(), url,
				&redis.Config{MaxKeys: maxKeys, Slot: slot, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				tb.Fatal(err)
			}
			s.ExpireSoon(10 * time.Millisecond)
			return s
		}
	}
}

func TestConformance(t *testing.T) {
	options := &storetest.Options{SelfExpiring: true, Full: boundedWith(nil)}
	t.Run("single", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.Redis(tb)) }, options)
	})
	t.Run("cluster", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.RedisCluster(tb)) },
			&storetest.Options{SelfExpiring: true, GroupsOnTrial: true})
	})
	// All keys in one slot: what holds for one server holds without an exception.
	slot := &redis.Config{Slot: func(string) string { return "}{k:" }}
	t.Run("cluster, one slot", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return openWith(tb, dbtest.RedisCluster(tb), slot) },
			&storetest.Options{SelfExpiring: true})
	})
	t.Run("single, with tags", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return openWith(tb, dbtest.Redis(tb), slot) },
			&storetest.Options{SelfExpiring: true, Full: boundedWith(slot.Slot)})
	})
}
