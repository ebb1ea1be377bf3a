package redis_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
)

func open(tb testing.TB, url string) *redis.Store {
	tb.Helper()
	s, err := redis.Open(context.Background(), url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { s.Close() })
	return s
}

// bounded makes a database of limits that have so many keys at most.
func bounded(tb testing.TB, maxKeys int) storetest.Open {
	url := dbtest.Redis(tb)
	return func(tb testing.TB) store.Store {
		s, err := redis.Open(context.Background(), url, &redis.Config{MaxKeys: maxKeys, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			tb.Fatal(err)
		}
		s.ExpireSoon(10 * time.Millisecond)
		return s
	}
}

func TestConformance(t *testing.T) {
	options := &storetest.Options{SelfExpiring: true, Full: bounded}
	t.Run("single", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.Redis(tb)) }, options)
	})
	t.Run("cluster", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.RedisCluster(tb)) },
			&storetest.Options{SelfExpiring: true, GroupsOnTrial: true})
	})
}
