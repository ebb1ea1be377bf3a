package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Cluster is a Redis Cluster at 127.0.0.1 or on a network: three primaries, each with a replica. Nodes time out in 2 s.
type Cluster struct {
	nodes
	options []string
}

const nodeTimeout = 2000 * time.Millisecond

var sharedCluster = sync.OnceValues(func() (*Cluster, error) { return StartRedisCluster(context.Background(), nil) })

// RedisCluster returns the URL of the shared cluster with a key prefix that no other test has.
func RedisCluster(tb testing.TB) string {
	tb.Helper()
	defer failTest(tb)
	c := must(sharedCluster())
	logVersion(tb, redisKind, "redis://"+c.Addrs()[0], " Cluster", redisVersion)
	return addKeyPrefix(c.URL())
}

// StartRedisCluster starts a cluster on a network of six nodes or on the loopback device. The cluster dies with this
// process. Nodes keep nothing on disk, unless options of redis-server ask for it; their files have different names.
func StartRedisCluster(ctx context.Context, network *Network, options ...string) (c *Cluster, err error) {
	defer returnFailure(&err)
	defer wrapFailure("start a Redis Cluster")
	f := new(Config).folder("redis", "redis")
	f.network = network
	c = &Cluster{nodes: nodes{list: make([]node, 6)}, options: options}
	c.begin(f, loopbackHost, 2, func() { c.create(ctx) })
	return c, nil
}

func (c *Cluster) create(ctx context.Context) {
	for i := range c.list {
		c.start(ctx, i)
	}
	args := []string{"--cluster", "create", "--cluster-replicas", "1", "--cluster-yes"}
	for i, addr := range c.Addrs() {
		args = append(args, fmt.Sprint(addr, "@", c.list[i].ports[1])) // the port of the cluster bus
	}
	c.folder.run(ctx, "", redisProgram("redis-cli"), args...)
	check(c.Await(ctx))
}

func (c *Cluster) start(ctx context.Context, i int) {
	args := append([]string{
		"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(c.list[i].ports[1]),
		"--cluster-node-timeout", strconv.Itoa(int(nodeTimeout.Milliseconds())),
		"--cluster-config-file", fmt.Sprintf("nodes%d.conf", i), "--dbfilename", fmt.Sprintf("dump%d.rdb", i),
		"--appenddirname", fmt.Sprintf("log%d", i),
		"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
	}, c.options...)
	c.run(i, func(host string, port int) *process { return launchRedis(ctx, c.folder, host, port, args...) })
}

// checkReady returns an error while the cluster cannot be used: a replica that has not finished its first copy would be
// promoted while it is empty.
func (c *Cluster) checkReady() error {
	replicas := 0
	for _, addr := range c.Addrs() {
		info, err := callRedis(addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
			return fmt.Errorf("%s: cluster not ok: %s", addr, info)
		}
		role, err := callRedis(addr, "INFO", "replication")
		if err != nil {
			return err
		}
		if strings.Contains(role, "role:slave") {
			replicas++
			if !strings.Contains(role, "master_link_status:up") {
				return fmt.Errorf("%s: replica not in step", addr)
			}
		}
	}
	if replicas != 3 {
		return fmt.Errorf("%d replicas, want 3", replicas)
	}
	return nil
}

// URL returns the URL of the cluster, which names all nodes.
func (c *Cluster) URL() string { return "redis://" + strings.Join(c.Addrs(), ",") + "/0" }

func (c *Cluster) Addrs() []string { return c.addrs("", 0, "") }

// Restart starts a node that was killed, and waits until all nodes are ready again.
func (c *Cluster) Restart(ctx context.Context, i int) (err error) {
	defer returnFailure(&err)
	c.start(ctx, i)
	return c.Await(ctx)
}

// Await waits until all nodes are ready and every replica has caught up.
func (c *Cluster) Await(ctx context.Context) error { return waitFor(ctx, 2*time.Minute, c.checkReady) }

// Primary returns the number of the node that is primary for a Redis key. It takes two seconds to skip a paused node.
func (c *Cluster) Primary(key string) (int, error) {
	for i, addr := range c.Addrs() {
		answer, err := callRedis(addr, "EXISTS", key)
		if err != nil {
			continue
		}
		role, err := callRedis(addr, "INFO", "replication")
		if err == nil && strings.Contains(role, "role:master") && !strings.HasPrefix(answer, "MOVED") {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no node is primary for %s", key)
}

// Sentinel starts a Redis Sentinel for the test. It calls the Redis at a port of 127.0.0.1 main.
func Sentinel(tb testing.TB, primaryPort string) (addr string) {
	tb.Helper()
	defer failTest(tb)
	port := freePort(loopback)
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	file := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\nprotected-mode no\nsentinel monitor main 127.0.0.1 %s 1\n"+
		"sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 5000\n", port, primaryPort)
	check(os.WriteFile(file, []byte(text), 0o600))
	server := redisProgram("redis-server")
	command := func() *exec.Cmd { return exec.CommandContext(context.Background(), server, file, "--sentinel") }
	Start(tb, command, func() error { return pingRedis(addr) })
	return addr
}
