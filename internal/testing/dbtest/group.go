package dbtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// MySQLGroup is a MySQL Group Replication of three nodes. All nodes take writes, or only the primary: at first node 0,
// later a node that the others elect. They expel a killed node from the group after some 5 s.
type MySQLGroup struct {
	mariadbNodes
	singlePrimary bool
}

// maxClusterWait ends waits that would otherwise hang. Under load, a node may take minutes to catch up.
const maxClusterWait = 10 * time.Minute

// StartMySQLGroup starts a group on a network of three nodes or on the loopback device, until the test ends. With
// singlePrimary, one node takes writes. The test is skipped unless [GroupReplication] is the engine to test with.
func StartMySQLGroup(tb testing.TB, network *Network, singlePrimary bool) *MySQLGroup {
	tb.Helper()
	NeedEngine(tb, GroupReplication)
	defer failTest(tb)
	defer wrapFailure("start a Group Replication")
	g := &MySQLGroup{mariadbNodes: mariadbNodes{flavour: newFlavour()}, singlePrimary: singlePrimary}
	ctx, cancel := context.WithTimeout(context.Background(), maxClusterWait)
	defer cancel()
	g.begin(ctx, network, loopbackHost, 2, func(f *folder) { g.create(ctx, f) })
	tb.Cleanup(g.Stop)
	mode := " Group Replication, multi-primary"
	if singlePrimary {
		mode = " Group Replication, single-primary"
	}
	logVersion(tb, mysqlKind, g.Servers()[0], mode, mariadbVersion)
	return g
}

func (g *MySQLGroup) create(ctx context.Context, f *folder) {
	emptyData := filepath.Join(f.path, "data")
	for i := range g.list {
		// auto.cnf has the identity of a server. A server makes one if the file is missing.
		const script = `cp -a "$0" "$1" && rm -f "$1/auto.cnf"`
		f.run(ctx, "", "sh", "-c", script, emptyData, fmt.Sprint(emptyData, i))
	}
	for i := range g.list {
		g.start(ctx, i)
		statements := "change replication source to source_user='root' for channel 'group_replication_recovery'; " +
			"start group_replication"
		if i == 0 {
			statements = "set global group_replication_bootstrap_group=ON; " + statements +
				"; set global group_replication_bootstrap_group=OFF"
		}
		check(g.join(ctx, i, statements))
	}
}

// start starts the server of a node, which is not in the group yet.
func (g *MySQLGroup) start(ctx context.Context, i int) {
	n, seeds := &g.list[i], g.addrs("", 1, "")
	multiMode, singleMode := "ON", "OFF"
	if g.singlePrimary {
		multiMode, singleMode = singleMode, multiMode
	}
	g.launch(ctx, i, func() error { return execMariaDB(g.Servers()[i], "do 1") },
		fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--sync-binlog=1",
		"--report-host="+n.host, fmt.Sprintf("--report-port=%d", n.ports[0]), "--innodb-buffer-pool-size=128M",
		"--super-read-only=ON", // unless it is a member: otherwise it would charge by itself
		"--plugin-load-add=group_replication.so",
		"--loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
		"--loose-group-replication-start-on-boot=OFF",
		"--loose-group-replication-local-address="+seeds[i], "--loose-group-replication-group-seeds="+
			strings.Join(seeds, ","),
		"--loose-group-replication-ip-allowlist="+n.host+"/24",
		"--loose-group-replication-member-expel-timeout=0", // after the 5 s until a node is suspected
		// An expelled node waits for Await, which knows when it may join.
		"--loose-group-replication-autorejoin-tries=0", "--loose-group-replication-exit-state-action=READ_ONLY",
		"--log-error-verbosity=3", // without notes the log does not say why a node could not join
		"--loose-group-replication-enforce-update-everywhere-checks="+multiMode,
		"--loose-group-replication-single-primary-mode="+singleMode,
	)
}

// join makes a node join the group, and waits until it has caught up.
func (g *MySQLGroup) join(ctx context.Context, i int, statements string) error {
	if err := execMariaDB(g.Servers()[i], statements); err != nil {
		return err
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		expelled, err := g.countMember(i, i, "in ('OFFLINE', 'ERROR')")
		if err == nil && expelled > 0 {
			return errors.New("it was taken out of the group before it had caught up")
		}
		online, err := g.countMember(i, i, "= 'ONLINE'")
		if err == nil && online > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it has not joined the group: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// countMember returns 1 if node i sees node j as a member in some state, and 0 if not.
func (g *MySQLGroup) countMember(i, j int, state string) (int, error) {
	return MariaDBCount(g.Servers()[i], fmt.Sprintf("select '', count(*) from "+
		"performance_schema.replication_group_members where member_port = %d and member_state %s",
		g.list[j].ports[0], state))
}

// Restart starts a node that was killed, and waits until it has joined the others.
func (g *MySQLGroup) Restart(ctx context.Context, i int) (err error) {
	defer returnFailure(&err)
	g.start(ctx, i)
	return g.rejoin(ctx, i)
}

// rejoin makes a node join again that was expelled from the group, or will be because it was killed. The node joins
// once no other node sees it as a member any more. If it joined before, the others would take it for the old member,
// which does not answer, and remove it at once. It would not notice, and its START GROUP_REPLICATION would fail after
// 91 s with error 3092. A node that was killed while it joined cannot join for a minute either; no table shows that.
// So rejoin retries after an error, and the node must not be killed meanwhile.
func (g *MySQLGroup) rejoin(ctx context.Context, i int) error {
	return g.retry(ctx, func(ctx context.Context) error {
		err := g.awaitExpelled(ctx, i)
		if err == nil {
			err = g.join(ctx, i, "stop group_replication; start group_replication")
		}
		if err != nil {
			time.Sleep(time.Second)
		}
		return err
	})
}

// retry calls attempt until it returns no error. After maxClusterWait it returns the last error, with lines from the
// logs of the nodes.
func (g *MySQLGroup) retry(ctx context.Context, attempt func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, maxClusterWait)
	defer cancel()
	if err := waitFor(ctx, maxClusterWait, func() error { return attempt(ctx) }); err != nil {
		return fmt.Errorf("%w\n%s", err, g.lastLines())
	}
	return nil
}

// awaitExpelled waits until no other node sees node i as a member.
func (g *MySQLGroup) awaitExpelled(ctx context.Context, i int) error {
	return waitFor(ctx, maxClusterWait, func() error {
		for j := range g.list {
			if n, err := g.countMember(j, i, "is not null"); j != i && err == nil && n > 0 {
				return errors.New("others take it for a member still")
			}
		}
		return nil
	})
}

// lastLines returns the last lines about the group in the logs of the nodes.
func (g *MySQLGroup) lastLines() string {
	var text strings.Builder
	for i, n := range g.list {
		if n.process != nil {
			fmt.Fprintf(&text, "node %d said\n%s\n", i, n.process.lastLines("[Repl]"))
		}
	}
	return text.String()
}

// Await waits until all nodes are in the group. Expelled nodes join again.
func (g *MySQLGroup) Await(ctx context.Context) error {
	return g.retry(ctx, func(ctx context.Context) (notReady error) {
		for i := range g.list {
			if expelled, err := g.countMember(i, i, "in ('OFFLINE', 'ERROR')"); err == nil && expelled > 0 {
				if err := g.rejoin(ctx, i); err != nil {
					return err
				}
			}
			n, err := MariaDBCount(g.Servers()[i], "select '', count(*) from "+
				"performance_schema.replication_group_members where member_state = 'ONLINE'")
			if err != nil || n != len(g.list) {
				notReady = fmt.Errorf("node %d sees %d nodes: %w", i, n, err)
			}
		}
		return notReady
	})
}
