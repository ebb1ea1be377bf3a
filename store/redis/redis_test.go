package redis_test

import (
	"context"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
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

// oneTag puts all keys into one slot, so that a Cluster behaves like a single server.
var oneTag = &redis.Config{Slot: func(string) string { return "}{k:" }}

func TestConformance(t *testing.T) {
	t.Run("single", func(t *testing.T) {
		storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, redis.OwnDatabase(tb)) },
			&storetest.Options{SelfExpiring: true})
	})
}

func TestConformanceWithConfigSlot(t *testing.T) {
	tier.Engines(t)
	storetest.Run(t, func(tb testing.TB) store.Store { return openWith(tb, redis.OwnDatabase(tb), oneTag) },
		&storetest.Options{SelfExpiring: true})
}

func TestConformanceOfACluster(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.ClusterEngine)
	storetest.Run(t, func(tb testing.TB) store.Store { return open(tb, dbtest.RedisCluster(tb)) },
		&storetest.Options{SelfExpiring: true, GroupsOnTrial: true})
}

func TestConformanceOfAClusterInOneSlot(t *testing.T) {
	dbtest.NeedEngine(t, dbtest.ClusterEngine)
	storetest.Run(t, func(tb testing.TB) store.Store { return openWith(tb, dbtest.RedisCluster(tb), oneTag) },
		&storetest.Options{SelfExpiring: true})
}
