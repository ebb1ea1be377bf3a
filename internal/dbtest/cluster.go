package dbtest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Cluster is a Redis Cluster of three primaries, each with a replica, at
// 127.0.0.1. Its node timeout is 2 s.
type Cluster struct {
	nodes  []*process
	launch []func(context.Context) (*process, error) // each node
	addrs  []string
	stop   func()
}

// nodeTimeout is cluster-node-timeout.
const nodeTimeout = 2000 * time.Millisecond

// busDistance is how far above a node's port is that of the cluster's bus.
const busDistance = 10000

var sharedCluster = sync.OnceValues(func() (*Cluster, error) { return StartRedisCluster(context.Background()) })

// RedisCluster returns the URL of a cluster with a key prefix that no other
// test has. The cluster is shared by the tests of the process, and ends with
// it.
func RedisCluster(tb testing.TB) string {
	tb.Helper()
	c, err := sharedCluster()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	say(tb, redisKind, "redis://"+c.addrs[0], " Cluster", redisVersion)
	return withPrefix(c.URL())
}

// StartRedisCluster starts a cluster, which dies with this process. Its nodes keep nothing on disk, unless options of
// redis-server say so: each has a name of its own for its files.
func StartRedisCluster(ctx context.Context, options ...string) (*Cluster, error) {
	return StartRedisClusterOn(ctx, nil, options...)
}

// StartRedisClusterOn is [StartRedisCluster] on a network of six nodes.
func StartRedisClusterOn(ctx context.Context, network *Network, options ...string) (*Cluster, error) {
	f, err := newFolder("redis", "redis")
	if err != nil {
		return nil, err
	}
	f.network = network
	c := &Cluster{}
	c.stop = stopper(func() {
		for _, n := range c.nodes {
			n.end(syscall.SIGKILL)
		}
		f.remove()
	})
	fail := func(err error) (*Cluster, error) {
		c.Stop()
		return nil, fmt.Errorf("start a Redis Cluster: %w", err)
	}
	for i := range 6 {
		host := "127.0.0.1"
		if network != nil {
			host = network.Host(i)
		}
		port, err := network.port(host, busDistance)
		if err != nil {
			return fail(err)
		}
		args := append([]string{
			"--cluster-enabled", "yes",
			"--cluster-node-timeout", strconv.Itoa(int(nodeTimeout.Milliseconds())), "--cluster-config-file",
			fmt.Sprintf("nodes%d.conf", i),
			"--dbfilename", fmt.Sprintf("dump%d.rdb", i), "--appenddirname", fmt.Sprintf("log%d", i),
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}, options...)
		launch := func(ctx context.Context) (*process, error) { return launchRedis(ctx, f, host, port, args...) }
		p, err := launch(ctx)
		if err != nil {
			return fail(err)
		}
		c.nodes, c.launch = append(c.nodes, p), append(c.launch, launch)
		c.addrs = append(c.addrs, net.JoinHostPort(host, strconv.Itoa(port)))
	}
	cli, err := RedisProgram("redis-cli")
	if err != nil {
		return fail(err)
	}
	if err := f.run(ctx, cli, append(append([]string{"--cluster", "create"}, c.addrs...), "--cluster-replicas", "1",
		"--cluster-yes")...); err != nil {
		return fail(err)
	}
	if err := c.Await(ctx); err != nil {
		return fail(err)
	}
	return c, nil
}

// ready says why the cluster cannot be used yet: a replica that has not
// finished its first copy would be promoted with nothing in it.
func (c *Cluster) ready() error {
	replicas := 0
	for _, addr := range c.addrs {
		info, err := askRedis(addr, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:6") {
			return fmt.Errorf("%s: cluster not ok: %s", addr, info)
		}
		role, err := askRedis(addr, "INFO", "replication")
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

// URL returns the URL of the cluster: all its nodes.
func (c *Cluster) URL() string { return "redis://" + strings.Join(c.addrs, ",") + "/0" }

// Stop ends all nodes.
func (c *Cluster) Stop() { c.stop() }

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string { return c.addrs }

// Kill ends a node at once.
func (c *Cluster) Kill(i int) { c.nodes[i].end(syscall.SIGKILL) }

// Restart starts a node that was killed, and waits until all nodes are well again.
func (c *Cluster) Restart(ctx context.Context, i int) error {
	p, err := c.launch[i](ctx)
	if err != nil {
		return err
	}
	c.nodes[i] = p
	return c.Await(ctx)
}

// Await waits until all nodes are well, and every replica is in step.
func (c *Cluster) Await(ctx context.Context) error {
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := c.ready()
		if err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

// Pause stops a node without ending it; Resume lets it go on.
func (c *Cluster) Pause(i int)  { _ = c.nodes[i].cmd.Process.Signal(syscall.SIGSTOP) }
func (c *Cluster) Resume(i int) { _ = c.nodes[i].cmd.Process.Signal(syscall.SIGCONT) }

// Primary returns the number of the node that is primary for a Redis key. A
// node that is paused takes two seconds to be passed over.
func (c *Cluster) Primary(key string) (int, error) {
	for i, addr := range c.addrs {
		answer, err := askRedis(addr, "EXISTS", key)
		if err != nil {
			continue
		}
		role, err := askRedis(addr, "INFO", "replication")
		if err == nil && strings.Contains(role, "role:master") && !strings.HasPrefix(answer, "MOVED") {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no node is primary for %s", key)
}
