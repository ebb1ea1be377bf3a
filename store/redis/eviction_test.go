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

// loggingStore is a store whose log a test reads.
type loggingStore struct {
	*Store
	t   *testing.T
	log bytes.Buffer
}

func (l *loggingStore) config() *Config {
	return &Config{Logger: slog.New(slog.NewTextHandler(&l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
}

func openLogging(t *testing.T, url string) *loggingStore {
	t.Helper()
	l := &loggingStore{t: t}
	l.Store = openTest(t, url, l.config())
	return l
}

// newLines returns the lines that were logged since its last call.
func (l *loggingStore) newLines() string {
	defer l.log.Reset()
	return l.log.String()
}

// sweepLog sweeps, and returns the lines that the sweep logs.
func (l *loggingStore) sweepLog() string {
	l.t.Helper()
	l.log.Reset()
	if _, err := l.Sweep(context.Background(), 10); err != nil {
		l.t.Fatal(err)
	}
	return l.newLines()
}

// expectSweepLog sweeps, and checks that the log gets one line for each level, and no others.
func (l *loggingStore) expectSweepLog(when string, levels ...string) {
	l.t.Helper()
	text := l.sweepLog()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if text == "" {
		lines = nil
	}
	ok := len(lines) == len(levels)
	for i := range lines {
		ok = ok && strings.Contains(lines[i], "level="+levels[i])
	}
	if !ok {
		l.t.Errorf("%s: a sweep logs %q, want lines of the levels %q", when, lines, levels)
	}
}

func (l *loggingStore) fillMemory() {
	l.t.Helper()
	for i := range 60 {
		admin(l.t, l.Store, "SET", fmt.Sprint("filler", i), strings.Repeat("x", 100_000), "PX", "600000")
	}
}

func TestOpenAndSweepLogEvictions(t *testing.T) {
	l := openLogging(t, startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru").DSN)
	if text := l.newLines(); strings.Count(text, "level=WARN") != 1 ||
		!strings.Contains(text, "maxmemory-policy=allkeys-lru") {
		t.Errorf("at the start: got the log %q, want one warning that names allkeys-lru", text)
	}
	l.expectSweepLog("nothing has changed")
	l.fillMemory()
	l.expectSweepLog("keys were evicted", "ERROR")
	l.expectSweepLog("nothing was evicted since")
}

// TestSweepLogsAChangedEvictionPolicy changes the policy of a server in use by CONFIG SET.
func TestSweepLogsAChangedEvictionPolicy(t *testing.T) {
	l := openLogging(t, startServer(t).DSN)
	if text := l.newLines(); text != "" {
		t.Errorf("at the start: got the log %q, want none", text)
	}
	l.expectSweepLog("as at the start")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	l.expectSweepLog("no memory is set") // without maxmemory nothing is evicted
	admin(t, l.Store, "CONFIG", "SET", "maxmemory", "4mb")
	l.expectSweepLog("may evict", "WARN")
	l.expectSweepLog("still")
	l.fillMemory()
	l.expectSweepLog("evicts", "ERROR")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
	l.expectSweepLog("another policy", "WARN")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.expectSweepLog("safe again", "INFO")
	l.expectSweepLog("still safe")

	// The policy changes and changes back between two sweeps.
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	l.fillMemory()
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "noeviction")
	l.expectSweepLog("keys were evicted meanwhile", "ERROR")

	// The server counts from 0 again.
	admin(t, l.Store, "CONFIG", "RESETSTAT")
	l.expectSweepLog("nothing was evicted since")
	admin(t, l.Store, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
	l.fillMemory()
	l.expectSweepLog("evicts again", "WARN", "ERROR")
}

// TestEachPrimaryOfAClusterIsCheckedForEviction checks that a sweep logs the policy of each primary, and of no replica:
// replicas evict nothing by themselves.
func TestEachPrimaryOfAClusterIsCheckedForEviction(t *testing.T) {
	tier.Engines(t)
	cluster, err := dbtest.StartRedisCluster(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	l := openLogging(t, cluster.URL())
	l.expectSweepLog("as at the start")
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
			l.expectSweepLog("a replica may evict")
			continue
		}
		primaries++
		if text := l.sweepLog(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, address) {
			t.Errorf("%s may evict, and a sweep logs %q, want one warning that names its address", address, text)
		}
		set("noeviction")
		l.expectSweepLog("safe again", "INFO")
	}
	if primaries != 3 {
		t.Errorf("got %d primaries, want 3", primaries)
	}
}

func TestAMissingRightToInfoIsLoggedOnce(t *testing.T) {
	server := startServer(t, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
	root := openTest(t, server.DSN, &Config{Logger: slog.New(slog.DiscardHandler)})
	list, _ := docRights(t)
	l := openLogging(t, limitedUser(t, root, server.DSN, list...))
	if text := l.newLines(); strings.Count(text, "cannot see whether the server evicts keys") != 1 ||
		strings.Contains(text, "level=WARN") {
		t.Errorf("at the start: got the log %q, want one line about evictions, at debug", text)
	}
	l.expectSweepLog("without the right to INFO")
	admin(t, root, "ACL", "SETUSER", "few", "+info")
	l.expectSweepLog("with the right", "WARN")
}

// redis62Client makes a server answer INFO as Redis 6.2 does: it refuses more than one section.
type redis62Client struct{ rueidis.Client }

func (c redis62Client) refuseSections(cmd rueidis.Completed) rueidis.Completed {
	if words := cmd.Commands(); words[0] == "INFO" && len(words) != 2 {
		return c.B().Arbitrary("CONFIG", "GET").Build() // "ERR wrong number of arguments"
	}
	return cmd
}

func (c redis62Client) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	return c.Client.Do(ctx, c.refuseSections(cmd))
}

func (c redis62Client) DoMulti(ctx context.Context, multi ...rueidis.Completed) []rueidis.RedisResult {
	for i := range multi {
		multi[i] = c.refuseSections(multi[i])
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
		t.Errorf("got the log %q, want a warning about allkeys-lru", text)
	}
}
