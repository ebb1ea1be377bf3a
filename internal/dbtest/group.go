package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// MySQLGroup is a MySQL Group Replication of three nodes. All of them take
// writes, or the first, until it is killed: then one that the others elect. Nodes
// are numbered from 0; Kill and Restart of one node are not for concurrent use.
type MySQLGroup struct {
	flavour *flavour
	folder  *folder
	single  bool
	nodes   [3]groupNode
	stop    func()
}

type groupNode struct {
	host    string
	port    int // of the server
	group   int // of the group of servers
	process *process
}

// StartMySQLGroup starts a group, which dies with this process. single says that
// only one node takes writes. The test is skipped unless [GroupReplication] is
// the engine to test with.
func StartMySQLGroup(tb testing.TB, single bool) *MySQLGroup {
	tb.Helper()
	return StartMySQLGroupOn(tb, nil, single)
}

// StartMySQLGroupOn is [StartMySQLGroup] on a network of three nodes.
func StartMySQLGroupOn(tb testing.TB, network *Network, single bool) *MySQLGroup {
	tb.Helper()
	NeedEngine(tb, GroupReplication)
	g, err := startMySQLGroup(context.Background(), network, single)
	if err != nil {
		tb.Fatalf("dbtest: start a Group Replication: %v", err)
	}
	tb.Cleanup(g.Stop)
	mode := " Group Replication, multi-primary"
	if single {
		mode = " Group Replication, single-primary"
	}
	say(tb, mysqlKind, g.Servers()[0], mode, mariadbVersion)
	return g
}

func startMySQLGroup(ctx context.Context, network *Network, single bool) (*MySQLGroup, error) {
	v, err := newFlavour()
	if err != nil {
		return nil, err
	}
	f, err := v.folder(ctx, new(Config))
	if err != nil {
		return nil, err
	}
	f.network = network
	g := &MySQLGroup{flavour: v, folder: f, single: single}
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
		return nil, err
	}
	return g, nil
}

// begin starts the nodes for the first time, each over a copy of the same files.
func (g *MySQLGroup) begin(ctx context.Context) error {
	empty := filepath.Join(g.folder.path, "data")
	for i := range g.nodes {
		n := &g.nodes[i]
		n.host = "127.0.0.1"
		if g.folder.network != nil {
			n.host = g.folder.network.Host(i)
		}
		for _, port := range []*int{&n.port, &n.group} {
			var err error
			if *port, err = g.folder.network.port(n.host); err != nil {
				return err
			}
		}
		// auto.cnf has the identity of a server, which the server makes where there is none.
		const script = `cp -a "$0" "$1" && rm -f "$1/auto.cnf"`
		if out, err := exec.CommandContext(ctx, "sh", "-c", script, empty,
			fmt.Sprint(empty, i)).CombinedOutput(); err != nil {
			return fmt.Errorf("copy: %w\n%s", err, out)
		}
	}
	for i := range g.nodes {
		if err := g.launch(ctx, i); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
		statements := "change replication source to source_user='root' for channel 'group_replication_recovery'; " +
			"start group_replication"
		if i == 0 {
			statements = "set global group_replication_bootstrap_group=ON; " + statements +
				"; set global group_replication_bootstrap_group=OFF"
		}
		if err := g.join(ctx, i, statements); err != nil {
			return fmt.Errorf("node %d: %w", i, err)
		}
	}
	return nil
}

// launch starts the server of a node, which is not in the group yet.
func (g *MySQLGroup) launch(ctx context.Context, i int) error {
	n := &g.nodes[i]
	seeds := make([]string, len(g.nodes))
	for j, m := range g.nodes {
		seeds[j] = fmt.Sprintf("%s:%d", m.host, m.group)
	}
	everywhere := map[bool]string{true: "OFF", false: "ON"}[g.single]
	p, err := g.flavour.launch(ctx, g.folder, fmt.Sprintf("data%d", i), n.host, n.port, func() error {
		return execMariaDB(g.Servers()[i], "do 1")
	},
		fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--sync-binlog=1",
		"--report-host="+n.host, fmt.Sprintf("--report-port=%d", n.port), "--innodb-buffer-pool-size=128M",
		"--super-read-only=ON", // until it is a member, and when it is none any more: else it would charge by itself
		"--plugin-load-add=group_replication.so",
		"--loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
		"--loose-group-replication-start-on-boot=OFF",
		"--loose-group-replication-local-address="+seeds[i], "--loose-group-replication-group-seeds="+
			strings.Join(seeds, ","),
		"--loose-group-replication-ip-allowlist="+n.host+"/24",
		"--loose-group-replication-member-expel-timeout=0", // beside the 5 s until a node is suspected
		"--loose-group-replication-enforce-update-everywhere-checks="+everywhere,
		"--loose-group-replication-single-primary-mode="+map[bool]string{true: "ON", false: "OFF"}[g.single],
	)
	n.process = p
	return err
}

// join has a node join the group, and waits until it has caught up.
func (g *MySQLGroup) join(ctx context.Context, i int, statements string) error {
	server := g.Servers()[i]
	if err := execMariaDB(server, statements); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		online, err := MariaDBCount(server,
			fmt.Sprintf("select '', count(*) from performance_schema.replication_group_members where member_port = "+
				"%d and member_state = 'ONLINE'", g.nodes[i].port))
		if err == nil && online == 1 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("it has not joined the group: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// Servers returns the URLs of the nodes: mysql://root@host:port/.
func (g *MySQLGroup) Servers() []string {
	urls := make([]string, len(g.nodes))
	for i, n := range g.nodes {
		urls[i] = fmt.Sprintf("mysql://root@%s:%d/", n.host, n.port)
	}
	return urls
}

// Kill ends a node at once. The others take it out of the group after some 5 s.
func (g *MySQLGroup) Kill(i int) {
	if p := g.nodes[i].process; p != nil { // nil: it could not be started again
		p.end(syscall.SIGKILL)
	}
}

// Restart starts a node that was killed, and waits until it has joined the others. They refuse it while they take
// it for a member still, and while their own membership changes (error 3092), so it asks more than once.
func (g *MySQLGroup) Restart(ctx context.Context, i int) error {
	if err := g.launch(ctx, i); err != nil {
		return err
	}
	statements := "start group_replication"
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		err := g.join(ctx, i, statements)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w; it said\n%s", err, g.nodes[i].process.said("[ERROR]"))
		}
		statements = "stop group_replication; start group_replication"
	}
}

// Await waits until all nodes are in the group. One that the others have taken out of it joins again.
func (g *MySQLGroup) Await(ctx context.Context) error {
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		var missing error
		for i, server := range g.Servers() {
			n, err := MariaDBCount(server, "select '', count(*) from performance_schema.replication_group_members "+
				"where member_state = 'ONLINE'")
			if err != nil || n != len(g.nodes) {
				missing = fmt.Errorf("node %d sees %d nodes: %w", i, n, err)
			}
			if err == nil && n == 0 && time.Since(begin) > 5*time.Second {
				missing = execMariaDB(server, "stop group_replication; start group_replication")
			}
		}
		if missing == nil || ctx.Err() != nil || time.Since(begin) > 3*time.Minute {
			return errors.Join(missing, ctx.Err())
		}
	}
}

// Stop ends all nodes and removes their files.
func (g *MySQLGroup) Stop() { g.stop() }
