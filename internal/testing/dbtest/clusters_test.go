package dbtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestRedisClusterReplacesAKilledPrimary(t *testing.T) {
	tier.Engines(t)
	begin := time.Now()
	c, err := StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	t.Logf("%s after %v", c.URL(), time.Since(begin).Round(time.Millisecond))
	owners := map[int]bool{}
	for _, key := range []string{"a", "b", "c", "d", "with a space", "e"} {
		i, err := c.Primary(key)
		if err != nil {
			t.Fatal(err)
		}
		owners[i] = true
	}
	if len(owners) < 2 {
		t.Errorf("primaries %v of six keys, want two or more", owners)
	}
	oldPrimary, err := c.Primary("a")
	if err != nil {
		t.Fatal(err)
	}
	c.Kill(oldPrimary)
	begin = time.Now()
	newPrimary := 0
	await.NoError(t, "another primary", func() (err error) {
		newPrimary, err = c.Primary("a")
		return err
	})
	if newPrimary == oldPrimary {
		t.Errorf("node %d is primary, want another than the killed node", newPrimary)
	}
	t.Logf("node %d in place of %d after %v", newPrimary, oldPrimary, time.Since(begin))
	c.Pause(5) // Stop must also end a paused node
	c.Stop()
	for _, addr := range c.Addrs() {
		if isListening(addr) {
			t.Errorf("%s still listens", addr)
		}
	}
}

func TestGaleraNodeIsKilledAndRejoins(t *testing.T) {
	NeedEngine(t, GaleraEngine)
	begin := time.Now()
	g, err := StartGalera(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	t.Logf("%s after %v", g.Servers(), time.Since(begin).Round(time.Millisecond))
	urls := MariaDBAt(t, g.Servers()...)
	if err := execMariaDB(urls[0], "create table "+databaseOf(urls[0])+
		".t (n int primary key) engine=innodb"); err != nil {
		t.Fatal(err)
	}
	g.Kill(0)
	begin = time.Now()
	await.NoError(t, "a write without node 0", func() error {
		return execMariaDB(urls[1], "insert into "+databaseOf(urls[0])+".t values (1)")
	})
	t.Logf("written without node 0 after %v", time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	if err := g.Restart(context.Background(), 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("node 0 is back after %v", time.Since(begin).Round(time.Millisecond))
	if n, err := MariaDBCount(urls[0], "select '', count(*) from "+databaseOf(urls[0])+".t"); err != nil || n != 1 {
		t.Errorf("got %d rows, error %v; want 1: the row that was written while the node was away", n, err)
	}
	if n, err := g.size(2); err != nil || n != 3 {
		t.Errorf("got %d nodes, error %v; want 3, nil", n, err)
	}
	g.Stop()
	for _, s := range g.Servers() {
		if isListening(hostOf(t, s)) {
			t.Errorf("%s still listens", s)
		}
	}
}

func TestGroupReplicationNodeIsKilledAndRejoins(t *testing.T) {
	for _, singlePrimary := range []bool{false, true} {
		g := StartMySQLGroup(t, nil, singlePrimary)
		urls := MariaDBAt(t, g.Servers()...)
		name := databaseOf(urls[0])
		if err := execMariaDB(urls[0], "create table "+name+".t (n int primary key)"); err != nil {
			t.Fatal(err)
		}
		if err := execMariaDB(urls[1], "insert into "+name+".t values (2)"); (err == nil) == singlePrimary {
			t.Errorf("single-primary %v: a write at the second node: %v", singlePrimary, err)
		}
		g.Kill(2)
		await.NoError(t, "a write without node 2", func() error {
			return execMariaDB(urls[0], "replace into "+name+".t values (10)")
		})
		if err := g.Restart(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		if n, err := MariaDBCount(urls[2], "select '', count(*) from "+name+".t where n = 10"); err != nil || n != 1 {
			t.Errorf("got %d rows, error %v; want 1: the row that was written while the node was away", n, err)
		}
		g.Stop()
		for _, s := range g.Servers() {
			if isListening(hostOf(t, s)) {
				t.Errorf("%s still listens", s)
			}
		}
	}
}

// databaseOf returns the name of the database in a URL.
func databaseOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }
