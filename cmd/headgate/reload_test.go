package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// TestConfigFileChangedBackIsApplied changes a config file and changes it back, also if two servers have a file each.
func TestConfigFileChangedBackIsApplied(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	for _, urls := range [][]string{{"memory:"}, {url, url}} {
		files, servers := make([]string, len(urls)), make([]*server, len(urls))
		for i, url := range urls {
			dir := t.TempDir()
			files[i] = filepath.Join(dir, "c.yaml")
			replaceFile(t, files[i], "store: \""+url+"\"\nlimits: {api: fixed-window 5/1h}\n")
			servers[i] = startReady(t, dir, "--config", files[i])
		}
		for n, amount := range []int{2, 6, 5, 2, 6} {
			i := n % len(files)
			text := fmt.Sprintf("fixed-window %d/1h", amount)
			replaceFile(t, files[i], "store: \""+urls[i]+"\"\nlimits: {api: "+text+"}\n")
			for _, s := range servers {
				s.waitUntil(t, text, func() bool { return strings.HasPrefix(s.limits(t)["api"], text) })
			}
			// The limits are in force a moment before /readyz reports no error of the file.
			s := servers[i]
			s.waitUntil(t, text+" without a complaint", func() bool { return s.health(t).Config == "" })
		}
		for _, s := range servers {
			s.stop(t)
		}
	}
}

// TestLostCatalogIsRestoredFromTheConfigFile empties, twice, the store of two servers with a file each. Each time the
// file that was applied last is in force again, and the servers do not overwrite each other's limits.
func TestLostCatalogIsRestoredFromTheConfigFile(t *testing.T) {
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
		replaceFile(t, file, "limits: {api: "+text+"}\n")
		servers[i] = startReady(t, dir, "--store", redis.DSN, "--config", file)
		servers[i].waitUntil(t, text, func() bool { return strings.HasPrefix(servers[i].limits(t)["api"], text) })
	}
	client := redisClient(t, redis.DSN)
	newestVersion := func() string {
		newest := client.B().Hget().Key("headgate:{catalog}:versions").Field("newest").Build()
		v, _ := client.Do(t.Context(), newest).ToString()
		return v
	}
	for range 2 {
		if err := client.Do(t.Context(), client.B().Flushall().Build()).Error(); err != nil {
			t.Fatal(err)
		}
		for _, s := range servers {
			s.waitUntil(t, "the newer file in force again", func() bool {
				return newestVersion() != "" && strings.HasPrefix(s.limits(t)["api"], texts[1])
			})
		}
		servers[1].waitUntil(t, "no complaint", func() bool { return servers[1].health(t).Config == "" })
		servers[0].waitUntil(t, "that its file is older", func() bool {
			return strings.Contains(servers[0].health(t).Config, "a newer file is in force")
		})
	}
	if output := servers[1].stop(t); !strings.Contains(output, "lost") {
		t.Errorf("got %q from the server, want that the catalog was lost", output)
	}
	// After a loss each server restores its file at most once: the newer one at once (1), or after the older one (2).
	if v := newestVersion(); v != "1" && v != "2" {
		t.Errorf("the newest version is %s, want 1 or 2", v)
	}
	servers[0].stop(t)
}
