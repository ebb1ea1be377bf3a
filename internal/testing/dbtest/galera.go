package dbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// GaleraCluster is a MariaDB Galera cluster of three nodes, at 127.0.0.21 to 23 or on a network. The others notice
// after 2 s that a node is away, and go on without it after 2 to 4 s.
type GaleraCluster struct {
	mariadbNodes
	library string
}

// Indexes of a node's ports; 0 is the port for clients.
const (
	galeraGroup     = 1 + iota // group communication
	galeraIST                  // incremental state transfer
	galeraSST                  // full state transfer
	galeraPortCount            // how many ports a node has
)

const galeraSynced = 4 // the wsrep_local_state of a node that has caught up

var sharedGalera = sync.OnceValues(func() (*GaleraCluster, error) { return StartGalera(context.Background(), nil) })

// Galera returns the URLs of a new, empty database on each node of the shared cluster. The test is skipped unless
// [GaleraEngine] is the engine to test with.
func Galera(tb testing.TB) []string {
	tb.Helper()
	NeedEngine(tb, GaleraEngine)
	defer failTest(tb)
	g := must(sharedGalera())
	logVersion(tb, anyKind, g.Servers()[0], " Galera", mariadbVersion)
	return MariaDBAt(tb, g.Servers()...)
}

// StartGalera starts a cluster on a network of three nodes or on the loopback device. It dies with this process.
func StartGalera(ctx context.Context, network *Network) (g *GaleraCluster, err error) {
	defer returnFailure(&err)
	defer wrapFailure("start a Galera cluster")
	program("rsync", "", "rsync") // without it, the first state transfer of a node would hang
	g = &GaleraCluster{library: findOrInstall(galeraLibrary, "Galera", "", "mariadb-server", "galera-4")}
	g.flavour = installedMariaDB() // the library is for its version
	hosts := func(i int) string { return fmt.Sprintf("127.0.0.%d", 21+i) }
	g.begin(ctx, network, hosts, galeraPortCount, func(f *folder) { g.create(ctx, f) })
	return g, nil
}

func galeraLibrary() string {
	debian, redHat := pathFinder("/usr/lib/galera/libgalera_smm.so"), pathFinder("/usr/lib64/galera-4/libgalera_smm.so")
	return cmp.Or(debian(), redHat())
}

func (g *GaleraCluster) create(ctx context.Context, f *folder) {
	data := filepath.Join(f.path, "data")
	if f.network != nil { // root connects from this machine's address there
		const account = "flush privileges;\ncreate user root@'%';\ngrant all on *.* to root@'%' with grant option;\n"
		f.run(ctx, account, g.flavour.server, "--no-defaults", "--bootstrap", "--datadir="+data,
			"--innodb-log-file-size=64M")
	}
	for i := range g.list {
		// Each node has files to start with. The second and third get those of the first when they join.
		f.run(ctx, "", "cp", "-a", data, fmt.Sprint(data, i))
	}
	for i := range g.list {
		g.start(ctx, i, i == 0)
	}
	check(g.Await(ctx))
}

// Await waits until each node sees all nodes, and has caught up.
func (g *GaleraCluster) Await(ctx context.Context) error {
	return waitFor(ctx, 2*time.Minute, func() error {
		for i := range g.list {
			n, err := g.size(i)
			if err = errors.Join(err, g.checkSynced(i)); err != nil || n != len(g.list) {
				return fmt.Errorf("node %d sees %d nodes: %w", i, n, err)
			}
		}
		return nil
	})
}

// start starts a node, the first of the cluster as a new cluster, and waits until it has caught up.
func (g *GaleraCluster) start(ctx context.Context, i int, first bool) {
	n, members := &g.list[i], g.addrs("", galeraGroup, "")
	args := []string{
		"--wsrep-on=ON", "--wsrep-provider=" + g.library, "--wsrep-cluster-name=headgate",
		"--wsrep-cluster-address=gcomm://" + strings.Join(members, ","), "--wsrep-node-address=" + n.host,
		"--wsrep-node-name=" + n.host,
		"--wsrep-sst-method=rsync", "--wsrep-sst-receive-address=" + g.addrs("", galeraSST, "")[i],
		fmt.Sprintf("--wsrep-provider-options=gmcast.listen_addr=tcp://%s;ist.recv_addr=%s;"+
			"evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;"+
			"evs.inactive_check_period=PT0.5S;gcache.size=32M;socket.ssl=NO",
			members[i], g.addrs("", galeraIST, "")[i]),
		"--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", "--innodb-buffer-pool-size=96M",
	}
	if first {
		args = append(args, "--wsrep-new-cluster")
	}
	g.launch(ctx, i, func() error { return g.checkSynced(i) }, args...)
}

// checkSynced returns an error while a node cannot be used.
func (g *GaleraCluster) checkSynced(i int) error {
	state, err := MariaDBCount(g.Servers()[i], "show global status like 'wsrep_local_state'")
	if err == nil && state != galeraSynced {
		err = fmt.Errorf("it has not caught up: wsrep_local_state is %d", state)
	}
	return err
}

func (g *GaleraCluster) size(i int) (int, error) {
	return MariaDBCount(g.Servers()[i], "show global status like 'wsrep_cluster_size'")
}

// Restart starts a node that was killed, and waits until it has joined the others. At least one of these must run.
func (g *GaleraCluster) Restart(ctx context.Context, i int) (err error) {
	defer returnFailure(&err)
	g.start(ctx, i, false)
	return nil
}
