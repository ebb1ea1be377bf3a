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

// MySQLGroup is a MySQL Group Replication of three nodes. All of them take
// writes, or the first, until it is killed: then one that the others elect. They take a node that is killed out of the
// group after some 5 s.
type MySQLGroup struct {
	mariadbNodes
	single bool
}

// patience ends what would otherwise hang. What a node lacks may take minutes to catch up with, beside a load.
const patience = 10 * time.Minute

// StartMySQLGroup starts a group on a network of three nodes or on the loopback device, which dies with this process.
// single says that one node takes writes. The test is skipped unless [GroupReplication] is the engine to test with.
func StartMySQLGroup(tb testing.TB, network *Network, single bool) *MySQLGroup {
	tb.Helper()
	NeedEngine(tb, GroupReplication)
	defer fatal(tb)
	defer about("start a Group Replication")
	g := &MySQLGroup{mariadbNodes: mariadbNodes{flavour: newFlavour()}, single: single}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g.begin(ctx, network, onLoopback, 2, func(f *folder) { g.create(ctx, f) })
	tb.Cleanup(g.Stop)
	mode := " Group Replication, multi-primary"
	if single {
		mode = " Group Replication, single-primary"
	}
	logVersion(tb, mysqlKind, g.Servers()[0], mode, mariadbVersion)
	return g
}

func (g *MySQLGroup) create(ctx context.Context, f *folder) {
	empty := filepath.Join(f.path, "data")
	for i := range g.list {
		// auto.cnf has the identity of a server, which the server makes where there is none.
		const script = `cp -a "$0" "$1" && rm -f "$1/auto.cnf"`
		f.run(ctx, "", "sh", "-c", script, empty, fmt.Sprint(empty, i))
	}
	for i := range g.list {
		g.start(ctx, i)
		statements := "change replication source to source_user='root' for channel 'group_replication_recovery'; " +
			"start group_replication"
		if i == 0 {
			statements = "set global group_replication_bootstrap_group=ON; " + statements +
				"; set global group_replication_bootstrap_group=OFF"
		}
		do(g.join(ctx, i, statements))
	}
}

// start starts the server of a node, which is not in the group yet.
func (g *MySQLGroup) start(ctx context.Context, i int) {
	n, seeds := &g.list[i], g.addrs("", 1, "")
	everywhere, primary := "ON", "OFF"
	if g.single {
		everywhere, primary = primary, everywhere
	}
	g.launch(ctx, i, func() error { return execMariaDB(g.Servers()[i], "do 1") },
		fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--sync-binlog=1",
		"--report-host="+n.host, fmt.Sprintf("--report-port=%d", n.ports[0]), "--innodb-buffer-pool-size=128M",
		"--super-read-only=ON", // until it is a member, and when it is none any more: else it would charge by itself
		"--plugin-load-add=group_replication.so",
		"--loose-group-replication-group-name=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
		"--loose-group-replication-start-on-boot=OFF",
		"--loose-group-replication-local-address="+seeds[i], "--loose-group-replication-group-seeds="+
			strings.Join(seeds, ","),
		"--loose-group-replication-ip-allowlist="+n.host+"/24",
		"--loose-group-replication-member-expel-timeout=0", // beside the 5 s until a node is suspected
		// What was expelled waits for Await, which knows when it may ask to join.
		"--loose-group-replication-autorejoin-tries=0", "--loose-group-replication-exit-state-action=READ_ONLY",
		"--log-error-verbosity=3", // without notes the log does not say why a node could not join
		"--loose-group-replication-enforce-update-everywhere-checks="+everywhere,
		"--loose-group-replication-single-primary-mode="+primary,
	)
}

// join has a node join the group, and waits until it has caught up.
func (g *MySQLGroup) join(ctx context.Context, i int, statements string) error {
	if err := execMariaDB(g.Servers()[i], statements); err != nil {
		return err
	}
	for ; ; time.Sleep(50 * time.Millisecond) {
		out, err := g.count(i, i, "in ('OFFLINE', 'ERROR')")
		if err == nil && out > 0 {
			return errors.New("it was taken out of the group before it had caught up")
		}
		online, err := g.count(i, i, "= 'ONLINE'")
		if err == nil && online > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("it has not joined the group: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// count returns 1 if a node takes another, or itself, for a member in some state, and 0 if not.
func (g *MySQLGroup) count(at, of int, state string) (int, error) {
	return MariaDBCount(g.Servers()[at], fmt.Sprintf("select '', count(*) from "+
		"performance_schema.replication_group_members where member_port = %d and member_state %s",
		g.list[of].ports[0], state))
}

// Restart starts a node that was killed, and waits until it has joined the others.
func (g *MySQLGroup) Restart(ctx context.Context, i int) (err error) {
	defer rescue(&err)
	g.start(ctx, i)
	return g.rejoin(ctx, i)
}

// rejoin has a node join again that was taken out of the group, or will be since it was killed. It asks once no other
// node takes it for a member any more. Were it added just before that, the others would take the new member for the old
// one, which does not answer, and remove it at once. It would not notice, and its START GROUP_REPLICATION would fail
// after 91 s with error 3092. A node that was killed while it joined is in the way of itself too, for a minute, and no
// table shows it. So after an error it asks again, and is not to be killed.
func (g *MySQLGroup) rejoin(ctx context.Context, i int) error {
	return g.patiently(ctx, func(ctx context.Context) error {
		err := g.forgotten(ctx, i)
		if err == nil {
			err = g.join(ctx, i, "stop group_replication; start group_replication")
		}
		if err != nil {
			time.Sleep(time.Second)
		}
		return err
	})
}

// patiently repeats until there is no error. The one at the end of patience has what the nodes have said.
func (g *MySQLGroup) patiently(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := until(ctx, patience, func() error { return ask(ctx) }); err != nil {
		return fmt.Errorf("%w\n%s", err, g.said())
	}
	return nil
}

// forgotten waits until no other node takes a node for a member.
func (g *MySQLGroup) forgotten(ctx context.Context, i int) error {
	return until(ctx, patience, func() error {
		for j := range g.list {
			if n, err := g.count(j, i, "is not null"); j != i && err == nil && n > 0 {
				return errors.New("others take it for a member still")
			}
		}
		return nil
	})
}

// said returns what the nodes have said about the group last.
func (g *MySQLGroup) said() string {
	var text strings.Builder
	for i, n := range g.list {
		if n.process != nil {
			fmt.Fprintf(&text, "node %d said\n%s\n", i, n.process.said("[Repl]"))
		}
	}
	return text.String()
}

// Await waits until all nodes are in the group. One that the others have taken out of it joins again.
func (g *MySQLGroup) Await(ctx context.Context) error {
	return g.patiently(ctx, func(ctx context.Context) (missing error) {
		for i := range g.list {
			if out, err := g.count(i, i, "in ('OFFLINE', 'ERROR')"); err == nil && out > 0 {
				if err := g.rejoin(ctx, i); err != nil {
					return err
				}
			}
			n, err := MariaDBCount(g.Servers()[i], "select '', count(*) from "+
				"performance_schema.replication_group_members where member_state = 'ONLINE'")
			if err != nil || n != len(g.list) {
				missing = fmt.Errorf("node %d sees %d nodes: %w", i, n, err)
			}
		}
		return missing
	})
}
