package redis

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// loggingStore is a store with its log.
type loggingStore struct {
	*Store
	t    *testing.T
	text bytes.Buffer
}

func (l *loggingStore) config() *Config {
	return &Config{Logger: slog.New(slog.NewTextHandler(&l.text, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func listen(t *testing.T, url string) *loggingStore {
	t.Helper()
	l := &loggingStore{t: t}
	l.Store = openTest(t, url, l.config())
	return l
}

// newLines returns the lines that were logged since its last call.
func (l *loggingStore) newLines() string {
	defer l.text.Reset()
	return l.text.String()
}

// sweep returns what a sweep logs.
func (l *loggingStore) sweep() string {
	l.t.Helper()
	l.text.Reset()
	if _, err := l.Sweep(context.Background(), 10); err != nil {
		l.t.Fatal(err)
	}
	return l.newLines()
}

// expect sweeps, and checks that the log gets one line for each level, and no others.
func (l *loggingStore) expect(when string, levels ...string) {
	l.t.Helper()
	text := l.sweep()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	ok := len(lines) == len(levels)
	for i := range lines {
		ok = ok && strings.Contains(lines[i], "level="+levels[i])
	}
	if !ok {
		l.t.Errorf("%s: a sweep logs %q, want %q", when, lines, levels)
	}
}

func (l *loggingStore) fill() {
	l.t.Helper()
	for i := range 60 {
		admin(l.t, l.Store, "SET", fmt.Sprint("filler", i), strings.Repeat("x", 100_000), "PX", "600000")
	}
}

func TestAServerThatMayEvictIsReported(t *testing.T) {
	l := listen(t, startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru").DSN)
	if text := l.newLines(); strings.Count(text, "level=WARN") != 1 ||
		!strings.Contains(text, "maxmemory-policy=allkeys-lru") {
		t.Errorf("logged at the start: %q; want one warning that names allkeys-lru", text)
	}
	l.expect("nothing has changed")
	l.fill()
	l.expect("keys were evicted", "ERROR")
	l.expect("nothing was evicted since")
}

// TestAChangedEvictionPolicyIsNoticed: CONFIG SET at a server that is in use.
func TestAChangedEvictionPolicyIsNoticed(t *testing.T) {
	l := listen(t, startServer(t).DSN)
	if text := l.newLines(); text != "" {
		t.Errorf("logged at the start: %q; want nothing", text)
	}
	l.expect("as at the start")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	l.expect("no memory is set") // without maxmemory nothing is evicted
	admin(t, l.Store, "CONFIG", "SET", "maxmemory", "4mb")
	l.expect("may evict", "WARN")
	l.expect("still")
	l.fill()
	l.expect("evicts", "ERROR")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	l.expect("another policy", "WARN")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.expect("safe again", "INFO")
	l.expect("still safe")

	// The policy changes and changes back between two sweeps.
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	l.fill()
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.expect("keys were evicted meanwhile", "ERROR")

	// The server counts from 0 again.
	admin(t, l.Store, "CONFIG", "RESETSTAT")
	l.expect("nothing was evicted since")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	l.fill()
	l.expect("evicts again", "WARN", "ERROR")
}

// TestEachPrimaryOfAClusterIsCheckedForEviction: the nodes of a cluster may have different
// policies. Replicas evict nothing by themselves.
func TestEachPrimaryOfAClusterIsCheckedForEviction(t *testing.T) {
	tier.Engines(t)
	cluster, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	l := listen(t, cluster.URL())
	l.expect("as at the start")
	primaries := 0
	for address, node := range l.client.Nodes() {
		set := func(policy string) {
			t.Helper()
			for _, words := range [][]string{{"maxmemory", "100mb"}, {"maxmemory-policy", policy}} {
				if err := node.Do(context.Background(), node.B().ConfigSet().ParameterValue().ParameterValue(words[0],
					words[1]).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
		}
		role, err := node.Do(context.Background(), node.B().Role().Build()).ToArray()
		if err != nil {
			t.Fatal(err)
		}
		set("allkeys-lru")
		if name, _ := role[0].ToString(); name != "master" {
			l.expect("a replica may evict")
			continue
		}
		primaries++
		if text := l.sweep(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, address) {
			t.Errorf("%s may evict, and a sweep logs %q; want one warning that names it", address, text)
		}
		set("noeviction")
		l.expect("safe again", "INFO")
	}
	if primaries != 3 {
		t.Errorf("%d primaries, want 3", primaries)
	}
}

func TestAMissingRightToInfoIsLoggedOnce(t *testing.T) {
	server := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
	root := openTest(t, server.DSN, &Config{Logger: slog.New(slog.DiscardHandler)})
	list, _ := rights(t)
	l := listen(t, limitedUser(t, root, server.DSN, list...))
	if text := l.newLines(); strings.Count(text, "cannot see whether the server evicts keys") != 1 ||
		strings.Contains(text, "level=WARN") {
		t.Errorf("logged at the start: %q; want one line about it, at debug", text)
	}
	l.expect("without the right to INFO")
	admin(t, root, "ACL", "SETUSER", "few", "+info")
	l.expect("with the right", "WARN")
}

// redis62Client makes a server answer as Redis 6.2 does.
type redis62Client struct{ rueidis.Client }

func (c redis62Client) asRedis62(cmd rueidis.Completed) rueidis.Completed {
	if words := cmd.Commands(); words[0] == "INFO" && len(words) != 2 {
		return c.B().Arbitrary("CONFIG", "GET").Build() // "ERR wrong number of arguments"
	}
	return cmd
}

func (c redis62Client) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.Client.Do(ctx, c.asRedis62(cmd))
}

func (c redis62Client) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for i := range multi {
		multi[i] = c.asRedis62(multi[i])
	}
	return c.Client.DoMulti(ctx, multi...)
}

func (c redis62Client) Nodes() map[string]rueidis.Client { return map[string]rueidis.Client{"as62": c} }

func TestRedis62IsCheckedForEviction(t *testing.T) {
	server := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
	l := &loggingStore{t: t}
	s := New(redis62Client{openTest(t, server.DSN, nil).client}, l.config())
	apply(t, s, takeOne("l", "k", hourly, 0))
	if text := l.newLines(); !strings.Contains(text, "level=WARN") {
		t.Errorf("no warning about allkeys-lru: %q", text)
	}
}
