package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/testing/chaos"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// startPostgresPair starts a primary with a synchronous standby, which is promoted in the fault fail-over.
func startPostgresPair(t *testing.T) *chaos.System {
	t.Helper()
	p := dbtest.StartPostgresPair(t)
	url := dbtest.PostgresAt(t, p.Primary().DSN)
	primaryHost, standbyHost := host(t, p.Primary().DSN), host(t, p.Standby().DSN)
	onEither := func(do func(*dbtest.Server)) func(context.Context, *rand.Rand) error {
		return func(_ context.Context, rng *rand.Rand) error {
			s := p.Primary()
			if rng.IntN(2) == 0 {
				s = p.Standby() // commits wait for the standby
			}
			do(s)
			return nil
		}
	}
	return &chaos.System{
		URL:   strings.Replace(url, primaryHost, primaryHost+","+standbyHost, 1) + "?target_session_attrs=read-write",
		Hosts: []string{primaryHost, standbyHost}, Open: openPostgres,
		Faults: []chaos.Fault{
			{Name: "fail-over", Weight: 3, Do: func(ctx context.Context, rng *rand.Rand) error {
				p.Primary().Crash()
				chaos.Pause(rng, 500*time.Millisecond)
				if err := p.Promote(ctx); err != nil {
					return err
				}
				chaos.Pause(rng, 2*time.Second)
				return p.Rejoin(ctx)
			}},
			{Name: "killed", Weight: 2, Do: func(ctx context.Context, rng *rand.Rand) error {
				s := p.Primary()
				if rng.IntN(2) == 0 {
					s = p.Standby()
				}
				s.Crash()
				chaos.Pause(rng, 500*time.Millisecond)
				return s.Restart(ctx)
			}},
			{Name: "stopped", Weight: 2, Do: onEither(func(s *dbtest.Server) {
				s.Pause()
				time.Sleep(time.Second)
				s.Resume()
			})},
			{Name: "sessions ended", Weight: 1, Do: func(ctx context.Context, _ *rand.Rand) error {
				dbURL := strings.Replace(url, primaryHost, host(t, p.Primary().DSN), 1)
				return asErrNothingBroken(eachPostgresSession(dbURL, "pg_terminate_backend")(ctx))
			}},
		},
	}
}

// nodes are the nodes of a cluster. One at a time is broken.
type nodes interface {
	Kill(i int)
	Restart(ctx context.Context, i int) error
	Pause(i int)
	Resume(i int)
	Await(ctx context.Context) error // waits until all nodes are ready
}

// nodeFaults returns the faults of a cluster of n nodes on a network. A killed node is away for up to maxAway, a parted
// or stopped one for up to twice that, so that the cluster notices some and others not. They are rarer than faults of
// the network, since they take much longer.
func nodeFaults(c nodes, network *dbtest.Network, n int, maxAway time.Duration) []chaos.Fault {
	return []chaos.Fault{
		{Name: "node killed", Weight: 1, Do: func(ctx context.Context, rng *rand.Rand) error {
			i := rng.IntN(n)
			c.Kill(i)
			chaos.Pause(rng, maxAway)
			begin := time.Now()
			err := c.Restart(ctx, i)
			for err != nil && time.Since(begin) < 5*time.Minute { // the others may not have noticed that it was away
				time.Sleep(2 * time.Second)
				c.Kill(i)
				err = c.Restart(ctx, i)
			}
			if err != nil {
				return err
			}
			return c.Await(ctx)
		}},
		{Name: "node parted", Weight: 1, Do: func(ctx context.Context, rng *rand.Rand) error {
			i := rng.IntN(n)
			if err := network.Part(i); err != nil {
				return err
			}
			chaos.Pause(rng, 2*maxAway)
			if err := network.Join(i); err != nil {
				return err
			}
			return c.Await(ctx)
		}},
		{Name: "node stopped", Weight: 1, Do: func(ctx context.Context, rng *rand.Rand) error {
			i := rng.IntN(n)
			c.Pause(i)
			chaos.Pause(rng, 2*maxAway)
			c.Resume(i)
			return c.Await(ctx)
		}},
	}
}

// newMySQLClusterSystem returns the system of a Galera or Group Replication cluster, with a database on all nodes.
func newMySQLClusterSystem(t *testing.T, servers []string, faults []chaos.Fault) *chaos.System {
	t.Helper()
	urls := dbtest.MariaDBAt(t, servers...)
	hosts := make([]string, len(urls))
	for i, u := range urls {
		hosts[i] = host(t, u)
	}
	name := urls[0][strings.LastIndexByte(urls[0], '/')+1:]
	endSessions := chaos.Fault{Name: "sessions ended", Weight: 3, Do: func(ctx context.Context, rng *rand.Rand) error {
		return asErrNothingBroken(eachMySQLSession(hosts[rng.IntN(len(hosts))], name, "KILL")(ctx))
	}}
	return &chaos.System{
		URL:   "mysql://root@" + strings.Join(hosts, ",") + "/" + name,
		Hosts: hosts, Open: openMySQL, Faults: append(faults, endSessions),
	}
}

// groupStarter returns a function that starts three servers with Group Replication. With singlePrimary only one takes
// writes, otherwise all do.
func groupStarter(singlePrimary bool) func(*testing.T) *chaos.System {
	return func(t *testing.T) *chaos.System {
		t.Helper()
		useEngine(t, dbtest.GroupReplication)
		network := dbtest.NewNetwork(t, 3)
		g := dbtest.StartMySQLGroup(t, network, singlePrimary)
		return newMySQLClusterSystem(t, g.Servers(), nodeFaults(g, network, 3, 4*time.Second))
	}
}

func startGalera(t *testing.T) *chaos.System {
	t.Helper()
	network := dbtest.NewNetwork(t, 3)
	g, err := dbtest.StartGalera(t.Context(), network)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return newMySQLClusterSystem(t, g.Servers(), nodeFaults(g, network, 3, 3*time.Second))
}

// clusterLoss is how long before a fail-over decisions may be lost. For a Redis Cluster: 1.5 node timeouts of 2 s, and
// 0.2 s (docs/stores.md). The test of Sentinel allows as much.
const clusterLoss = 3200 * time.Millisecond

// startRedisCluster starts a Redis Cluster whose nodes keep all on disk. Clients learn addresses from the nodes, so
// there is no proxy.
func startRedisCluster(t *testing.T) *chaos.System {
	t.Helper()
	network := dbtest.NewNetwork(t, 6)
	c, err := dbtest.StartRedisCluster(t.Context(), network, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	faults := nodeFaults(c, network, len(c.Addrs()), 4*time.Second)
	for i := range faults {
		faults[i].Forgets = clusterLoss
	}
	endSessions := chaos.Fault{Name: "sessions ended", Weight: 3, Do: func(ctx context.Context, rng *rand.Rand) error {
		return asErrNothingBroken(endRedisSessions(ctx, c.Addrs()[rng.IntN(len(c.Addrs()))]))
	}}
	return &chaos.System{URL: c.URL(), Open: openRedis, Faults: append(faults, endSessions)}
}

// startSentinel starts a Redis with a replica, and a Sentinel that names the primary.
func startSentinel(t *testing.T) *chaos.System {
	t.Helper()
	options := []string{"--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"}
	primary := startServer(t, (&dbtest.Config{Args: options}).Redis)
	_, port, err := net.SplitHostPort(host(t, primary.DSN))
	if err != nil {
		t.Fatal(err)
	}
	replica := startServer(t, (&dbtest.Config{Args: append(options, "--replicaof", "127.0.0.1", port)}).Redis)
	sentinel := dbtest.Sentinel(t, port)
	servers := []*dbtest.Server{primary, replica}
	awaitReplica := func(ctx context.Context) error { return awaitCaughtUpReplica(ctx, sentinel) }
	if err := awaitReplica(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &chaos.System{
		URL: "redis://" + sentinel + "/?master=main", Open: openRedis,
		Faults: []chaos.Fault{
			{Name: "node killed", Weight: 3, Forgets: clusterLoss, Do: func(ctx context.Context, rng *rand.Rand) error {
				s := servers[rng.IntN(2)]
				s.Crash()
				chaos.Pause(rng, 4*time.Second)
				if err := s.Restart(ctx); err != nil {
					return err
				}
				return awaitReplica(ctx)
			}},
			{Name: "node stopped", Weight: 3, Forgets: clusterLoss, Do: func(ctx context.Context, rng *rand.Rand) error {
				s := servers[rng.IntN(2)]
				s.Pause()
				chaos.Pause(rng, 4*time.Second)
				s.Resume()
				return awaitReplica(ctx)
			}},
			{Name: "sessions ended", Weight: 2, Do: func(ctx context.Context, rng *rand.Rand) error {
				return asErrNothingBroken(endRedisSessions(ctx, host(t, servers[rng.IntN(2)].DSN)))
			}},
		},
	}
}

// awaitCaughtUpReplica waits up to a minute until the primary that a Sentinel names has a replica that has caught up.
func awaitCaughtUpReplica(ctx context.Context, sentinel string) error {
	checkReplica := func() error {
		c, err := rueidis.NewClient(rueidis.ClientOption{
			InitAddress: []string{sentinel}, Sentinel: rueidis.SentinelOption{MasterSet: "main"}, DisableCache: true,
		})
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		text, err := c.Do(ctx, c.B().Info().Section("replication").Build()).ToString()
		if err == nil && !strings.Contains(text, "state=online") {
			err = errors.New("no replica is in step: " + text)
		}
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if err := checkReplica(); err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
	}
}
