package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// GaleraCluster is a MariaDB Galera cluster of three nodes, at addresses
// 127.0.0.21 to 23. A node that is away is noticed after 2 s.
type GaleraCluster struct {
	nodes [3]*process
	ports [3]int // of the server, then of the group, of state transfers
	dir   string
	owner *syscall.Credential
	gcomm string
	stop  func()
}

var sharedGalera = sync.OnceValues(func() (*GaleraCluster, error) { return StartGalera(context.Background()) })

// Galera returns the URLs of a new, empty database on each node of a cluster.
// The cluster is shared by the tests of the process, and ends with it.
func Galera(tb testing.TB) []string {
	tb.Helper()
	g, err := sharedGalera()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	return MariaDBAt(tb, g.Servers()...)
}

// StartGalera starts a cluster, which dies with this process.
func StartGalera(ctx context.Context) (*GaleraCluster, error) {
	_, _, owner, dir, err := mariadbFiles(ctx)
	if err != nil {
		return nil, err
	}
	g := &GaleraCluster{dir: dir, owner: owner}
	g.stop = stopper(func() {
		for _, n := range g.nodes {
			if n != nil {
				n.end(syscall.SIGKILL)
			}
		}
		os.RemoveAll(dir)
	})
	fail := func(err error) (*GaleraCluster, error) {
		g.Stop()
		return nil, fmt.Errorf("start a Galera cluster: %w", err)
	}
	g.gcomm = "gcomm://"
	for i := range g.nodes {
		if g.ports[i], err = freePort(g.host(i)); err != nil {
			return fail(err)
		}
		group, err := freePort(g.host(i))
		if err != nil {
			return fail(err)
		}
		if i > 0 {
			g.gcomm += ","
		}
		g.gcomm += fmt.Sprintf("%s:%d", g.host(i), group)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("group%d", i)), fmt.Appendf(nil, "%s:%d", g.host(i), group), 0o600); err != nil {
			return fail(err)
		}
		// The first node's files are the others' too, until it brings them up
		// to date.
		if out, err := exec.CommandContext(ctx, "cp", "-a", filepath.Join(dir, "data"), filepath.Join(dir, fmt.Sprintf("data%d", i))).CombinedOutput(); err != nil {
			return fail(fmt.Errorf("copy: %w\n%s", err, out))
		}
	}
	for i := range g.nodes {
		if err := g.start(ctx, i, i == 0); err != nil {
			return fail(err)
		}
	}
	return g, nil
}

func (g *GaleraCluster) host(i int) string { return fmt.Sprintf("127.0.0.%d", 21+i) }

// start starts a node, the first as a new cluster, and waits until it takes
// statements.
func (g *GaleraCluster) start(ctx context.Context, i int, first bool) error {
	host := g.host(i)
	group, err := os.ReadFile(filepath.Join(g.dir, fmt.Sprintf("group%d", i)))
	if err != nil {
		return err
	}
	ist, err := freePort(host)
	if err != nil {
		return err
	}
	sst, err := freePort(host)
	if err != nil {
		return err
	}
	args := []string{
		"--wsrep-on=ON", "--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--wsrep-cluster-name=headgate",
		"--wsrep-cluster-address=" + g.gcomm, "--wsrep-node-address=" + host, "--wsrep-node-name=" + host,
		"--wsrep-sst-method=rsync", fmt.Sprintf("--wsrep-sst-receive-address=%s:%d", host, sst),
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s:%d;"+
			"evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.inactive_check_period=PT0.5S;gcache.size=32M;socket.ssl=NO",
			group, host, ist),
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=96M",
	}
	if first {
		args = append(args, "--wsrep-new-cluster")
	}
	n, err := launchMariaDB(ctx, g.dir, fmt.Sprintf("data%d", i), g.owner, host, g.ports[i], args...)
	if err != nil {
		return fmt.Errorf("node %d: %w", i+1, err)
	}
	g.nodes[i] = n
	return nil
}

// Servers returns the URLs of the nodes.
func (g *GaleraCluster) Servers() []string {
	urls := make([]string, len(g.nodes))
	for i := range g.nodes {
		urls[i] = fmt.Sprintf("mysql://root@%s:%d/", g.host(i), g.ports[i])
	}
	return urls
}

// Kill ends a node at once. Restart lets it join again.
func (g *GaleraCluster) Kill(i int) { g.nodes[i].end(syscall.SIGKILL) }

// Restart starts a node that was killed.
func (g *GaleraCluster) Restart(ctx context.Context, i int) error { return g.start(ctx, i, false) }

// Stop ends all nodes.
func (g *GaleraCluster) Stop() { g.stop() }
