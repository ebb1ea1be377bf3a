package redis_test

import (
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redis"
	"github.com/headgate/headgate/store/storetest"
)

// TestDoctor plants what may be wrong with a server of its own, one thing after the other.
func TestDoctor(t *testing.T) {
	t.Parallel()
	server, err := dbtest.StartRedis(t.Context(), "--appendonly", "yes")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	s, err := redis.Open(t.Context(), server.DSN, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	option, err := rueidis.ParseURL(server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	set := func(name, value string) {
		t.Helper()
		if err := c.Do(t.Context(), c.B().ConfigSet().ParameterValue().ParameterValue(name,
			value).Build()).Error(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	storetest.FindsNothing(t, s)
	for _, tt := range []struct {
		severity       store.Severity
		check, remedy  string
		name, to, back string
	}{
		{store.Note, "eviction", "noeviction", "maxmemory-policy", "allkeys-lru", "noeviction"},
		{store.Wrong, "memory", "maxmemory", "maxmemory", "1000000", "0"},
		{store.Note, "durability", "appendonly yes", "appendonly", "no", "yes"},
	} {
		set(tt.name, tt.to)
		storetest.Finds(t, s, tt.severity, tt.check, tt.remedy)
		set(tt.name, tt.back)
	}
	set("maxmemory-policy", "allkeys-lru")
	set("maxmemory", "100000000")
	storetest.Finds(t, s, store.Wrong, "eviction", "noeviction")
}
