package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// TestAFileThatIsChangedBackIsInForce undoes changes of the config file, also if two servers have a file each.
func TestAFileThatIsChangedBackIsInForce(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	for _, urls := range [][]string{{"memory:"}, {url, url}} {
		files, servers := make([]string, len(urls)), make([]*server, len(urls))
		for i, url := range urls {
			dir := t.TempDir()
			files[i] = filepath.Join(dir, "c.yaml")
			write(t, files[i], "store: \""+url+"\"\nlimits: {api: fixed-window 5/1h}\n")
			servers[i] = startReady(t, dir, "--config", files[i])
		}
		for n, amount := range []int{2, 6, 5, 2, 6} {
			i := n % len(files)
			text := fmt.Sprintf("fixed-window %d/1h", amount)
			write(t, files[i], "store: \""+urls[i]+"\"\nlimits: {api: "+text+"}\n")
			for _, s := range servers {
				s.waitUntil(t, text, func() bool { return strings.HasPrefix(s.limits(t)["api"], text) })
			}
			// The limits are in force a moment before the server says that its file is.
			s := servers[i]
			s.waitUntil(t, text+" without a complaint", func() bool { return s.health(t).Config == "" })
		}
		for _, s := range servers {
			s.stop(t)
		}
	}
}

// TestAStoreThatLostItsCatalogGetsItAgain empties the store of two servers with a file each. The same file is in force
// again, and the servers do not overwrite each other's limits.
func TestAStoreThatLostItsCatalogGetsItAgain(t *testing.T) {
	t.Parallel()
	redis, err := (&dbtest.Config{}).Redis(t.Context()) // not shared: the test empties it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Stop)
	texts := []string{"fixed-window 1/1h", "fixed-window 2/1h"}
	servers := make([]*server, len(texts))
	for i, text := range texts {
		dir := t.TempDir()
		file := filepath.Join(dir, "c.yaml")
		write(t, file, "limits: {api: "+text+"}\n")
		servers[i] = startReady(t, dir, "--store", redis.DSN, "--config", file)
		servers[i].waitUntil(t, text, func() bool { return strings.HasPrefix(servers[i].limits(t)["api"], text) })
	}
	client := redisClient(t, redis.DSN)
	versions := func() string {
		newest := client.B().Hget().Key("headgate:{catalog}:versions").Field("newest").Build()
		v, _ := client.Do(t.Context(), newest).ToString()
		return v
	}
	for range 2 {
		if err := client.Do(t.Context(), client.B().Flushall().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			s.waitUntil(t, "the file of before", func() bool {
				return versions() != "" && strings.HasPrefix(s.limits(t)["api"], texts[1])
			})
		}
		servers[1].waitUntil(t, "no complaint", func() bool { return servers[1].health(t).Config == "" })
		servers[0].waitUntil(t, "that its file is older", func() bool {
			return strings.Contains(servers[0].health(t).Config, "a newer file is in force")
		})
	}
	if said := servers[1].stop(t); !strings.Contains(said, "lost") {
		t.Errorf("the server says %q", said)
	}
	if v := versions(); v != "1" && v != "2" {
		t.Errorf("two servers have made %s versions", v)
	}
	servers[0].stop(t)
}
