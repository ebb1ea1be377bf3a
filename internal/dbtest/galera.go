package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// GaleraCluster is a MariaDB Galera cluster of three nodes, at addresses
// 127.0.0.21 to 23. A node that is away is noticed after 2 s. Nodes are
// numbered from 0; Kill and Restart of one node are not for concurrent use.
type GaleraCluster struct {
	flavour *flavour
	folder  *folder
	library string
	nodes   [3]galeraNode
	stop    func()
}

type galeraNode struct {
	host    string
	port    int // of the server
	group   int // of the group of servers
	some    int // where it takes what it lacks (IST),
	all     int // or everything (SST)
	process *process
}

var sharedGalera = sync.OnceValues(func() (*GaleraCluster, error) { return StartGalera(context.Background()) })

// Galera returns the URLs of a new, empty database on each node of a cluster.
// The cluster is shared by the tests of the process, and ends with it. The test is
// skipped unless [GaleraEngine] is the engine to test with.
func Galera(tb testing.TB) []string {
	tb.Helper()
	NeedEngine(tb, GaleraEngine)
	g, err := sharedGalera()
	if err != nil {
		tb.Fatalf("dbtest: %v", err)
	}
	say(tb, anyKind, g.Servers()[0], " Galera", mariadbVersion)
	return MariaDBAt(tb, g.Servers()...)
}

// StartGalera starts a cluster on the loopback device, which dies with this process.
func StartGalera(ctx context.Context) (*GaleraCluster, error) { return StartGaleraOn(ctx, nil) }

// StartGaleraOn starts a cluster on a network of three nodes.
func StartGaleraOn(ctx context.Context, network *Network) (*GaleraCluster, error) {
	library, err := orInstall(galeraLibrary, "Galera", "", "mariadb-server", "galera-4")
	if err != nil {
		return nil, err
	}
	// Its absence would be found by a node that waits for its first copy.
	if _, err := program("rsync", "", "rsync"); err != nil {
		return nil, err
	}
	v, err := installedMariaDB() // whose version the library is of
	if err != nil {
		return nil, err
	}
	f, err := v.folder(ctx, new(Config))
	if err != nil {
		return nil, err
	}
	f.network = network
	g := &GaleraCluster{flavour: v, folder: f, library: library}
	g.stop = stopper(func() {
		for _, n := range g.nodes {
			if n.process != nil {
				n.process.end(syscall.SIGKILL)
			}
		}
		f.remove()
	})
	if err := g.begin(ctx); err != nil {
		g.Stop()
		return nil, fmt.Errorf("start a Galera cluster: %w", err)
	}
	return g, nil
}

func galeraLibrary() string {
	// Debian's place, then Red Hat's.
	for _, path := range []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

// begin starts the nodes for the first time, and waits until each sees all.
func (g *GaleraCluster) begin(ctx context.Context) error {
	if g.folder.network != nil { // root comes from this machine's address there
		cmd := g.folder.command(ctx, g.flavour.server, "--no-defaults", "--bootstrap", "--datadir="+g.data(""),
			"--innodb-log-file-size=64M")
		cmd.Stdin = strings.NewReader("flush privileges;\ncreate user root@'%';\n" +
			"grant all on *.* to root@'%' with grant option;\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make an account: %w\n%s", err, tail(string(out), 10))
		}
	}
	for i := range g.nodes {
		n := &g.nodes[i]
		n.host = fmt.Sprintf("127.0.0.%d", 21+i)
		if g.folder.network != nil {
			n.host = g.folder.network.Host(i)
		}
		for _, port := range []*int{&n.port, &n.group, &n.some, &n.all} {
			var err error
			if *port, err = g.folder.network.port(n.host); err != nil {
				return err
			}
		}
		// Each has files to start with; the second and third get the first
		// one's when they join.
		if out, err := exec.CommandContext(ctx, "cp", "-a", g.data(""),
			g.data(fmt.Sprint(i))).CombinedOutput(); err != nil {
			return fmt.Errorf("copy: %w\n%s", err, out)
		}
	}
	for i := range g.nodes {
		if err := g.start(ctx, i, i == 0); err != nil {
			return err
		}
	}
	return g.Await(ctx)
}

// Await waits until each node sees all, and has caught up.
func (g *GaleraCluster) Await(ctx context.Context) error {
	for i := range g.nodes {
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
			n, err := g.size(i)
			state, err2 := g.state(i)
			if err == nil && err2 == nil && n == len(g.nodes) && state == galeraSynced {
				break
			}
			if time.Now().After(deadline) || ctx.Err() != nil {
				return fmt.Errorf("node %d sees %d of %d, and its wsrep_local_state is %d: %w", i, n, len(g.nodes), state,
					errors.Join(err, err2, ctx.Err()))
			}
		}
	}
	return nil
}

func (g *GaleraCluster) data(suffix string) string {
	return filepath.Join(g.folder.path, "data"+suffix)
}

// start starts a node, the first as a new cluster, and waits until it takes
// statements as a member that has caught up.
func (g *GaleraCluster) start(ctx context.Context, i int, first bool) error {
	n := &g.nodes[i]
	members := make([]string, len(g.nodes))
	for j, m := range g.nodes {
		members[j] = fmt.Sprintf("%s:%d", m.host, m.group)
	}
	args := []string{
		"--wsrep-on=ON", "--wsrep-provider=" + g.library, "--wsrep-cluster-name=headgate",
		"--wsrep-cluster-address=gcomm://" + strings.Join(members, ","), "--wsrep-node-address=" + n.host,
		"--wsrep-node-name=" + n.host,
		"--wsrep-sst-method=rsync", fmt.Sprintf("--wsrep-sst-receive-address=%s:%d", n.host, n.all),
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s:%d;"+
			"evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;"+
			"evs.inactive_check_period=PT0.5S;gcache.size=32M;socket.ssl=NO",
			members[i], n.host, n.some),
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=96M",
	}
	if first {
		args = append(args, "--wsrep-new-cluster")
	}
	p, err := g.flavour.launch(ctx, g.folder, fmt.Sprintf("data%d", i), n.host, n.port, func() error {
		state, err := g.state(i)
		if err == nil && state != galeraSynced {
			err = fmt.Errorf("it has not caught up: wsrep_local_state is %d", state)
		}
		return err
	}, args...)
	if err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	n.process = p
	return nil
}

// galeraSynced is the wsrep_local_state of a node that has caught up.
const galeraSynced = 4

func (g *GaleraCluster) state(i int) (int, error) {
	return MariaDBCount(g.Servers()[i], "show global status like 'wsrep_local_state'")
}

// size returns how many nodes a node sees, itself too.
func (g *GaleraCluster) size(i int) (int, error) {
	return MariaDBCount(g.Servers()[i], "show global status like 'wsrep_cluster_size'")
}

// Servers returns the URLs of the nodes: mysql://root@host:port/.
func (g *GaleraCluster) Servers() []string {
	urls := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		urls[i] = fmt.Sprintf("mysql://root@%s:%d/", n.host, n.port)
	}
	return urls
}

// URLs returns the URLs of a database on each node.
func (g *GaleraCluster) URLs(database string) []string {
	urls := g.Servers()
	for i := range urls {
		urls[i] += database
	}
	return urls
}

// Kill ends a node at once. The others go on without it after 2 to 4 s.
func (g *GaleraCluster) Kill(i int) {
	if p := g.nodes[i].process; p != nil { // nil: it could not be started again
		p.end(syscall.SIGKILL)
	}
}

// Restart starts a node that was killed, and waits until it has joined the
// others. One of them must be left: there is nothing to join otherwise.
func (g *GaleraCluster) Restart(ctx context.Context, i int) error { return g.start(ctx, i, false) }

// Stop ends all nodes and removes their files.
func (g *GaleraCluster) Stop() { g.stop() }
