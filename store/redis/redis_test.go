package redis_test

import (
	"context"
	"testing"

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

func TestConformance(t *testing.T) {
	options := &storetest.Options{SelfExpiring: true}
	t.Run("single", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.Redis(tb)) }, options)
	})
	t.Run("cluster", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.RedisCluster(tb)) },
			&storetest.Options{SelfExpiring: true, GroupsOnTrial: true})
	})
}
