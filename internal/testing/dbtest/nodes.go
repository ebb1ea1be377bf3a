package dbtest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// nodes are the servers of a cluster, numbered from 0. Kill and Restart of one node are not for concurrent use.
type nodes struct {
	folder *folder
	list   []node
	stop   func()
}

type node struct {
	host    string
	ports   []int    // the first is that of clients
	process *process // nil: it could not be started
}

// begin gives each node an address and ports, and starts all with do. hosts are their addresses where the
// folder has no network.
func (n *nodes) begin(f *folder, hosts func(i int) string, ports int, do func() error) error {
	n.folder = f
	n.stop = stopper(func() {
		for i := range n.list {
			n.Kill(i)
		}
		f.remove()
	})
	if f.network != nil {
		hosts = f.network.Host
	}
	var err error
	for i := range n.list {
		m := &n.list[i]
		m.host, m.ports = hosts(i), make([]int, ports)
		for k := range m.ports {
			if err == nil {
				m.ports[k], err = f.network.port(m.host)
			}
		}
	}
	if err == nil {
		err = do()
	}
	if err != nil {
		n.Stop()
	}
	return err
}

// onLoopback returns the address of nodes that may share one.
func onLoopback(int) string { return loopback }

// run starts the server of a node.
func (n *nodes) run(i int, start func(host string, port int) (*process, error)) error {
	m := &n.list[i]
	p, err := start(m.host, m.ports[0])
	if err != nil {
		return fmt.Errorf("node %d: %w", i, err)
	}
	m.process = p
	return nil
}

// addrs returns host:port of each node, for one of its ports, between two texts.
func (n *nodes) addrs(before string, port int, after string) []string {
	list := make([]string, len(n.list))
	for i, m := range n.list {
		list[i] = before + net.JoinHostPort(m.host, strconv.Itoa(m.ports[port])) + after
	}
	return list
}

// Kill ends a node at once.
func (n *nodes) Kill(i int) {
	if p := n.list[i].process; p != nil {
		p.end(syscall.SIGKILL)
	}
}

// Pause stops a node without ending it; Resume lets it go on.
func (n *nodes) Pause(i int) { n.list[i].process.signal(syscall.SIGSTOP) }

// Resume lets a node go on that was paused.
func (n *nodes) Resume(i int) { n.list[i].process.signal(syscall.SIGCONT) }

// Stop ends all nodes and removes their files.
func (n *nodes) Stop() { n.stop() }

// mariadbNodes are those of a cluster that speaks MySQL's protocol.
type mariadbNodes struct {
	nodes
	flavour *flavour
}

// begin starts three nodes with do, each over a copy of the same files in the folder.
func (n *mariadbNodes) begin(ctx context.Context, network *Network, hosts func(i int) string, ports int,
	do func(f *folder) error,
) error {
	f, err := newFolder("mariadb", "mysql")
	if err != nil {
		return err
	}
	f.network, n.list = network, make([]node, 3)
	return n.nodes.begin(f, hosts, ports, func() error {
		err := n.flavour.fill(ctx, f)
		if err == nil {
			err = do(f)
		}
		return err
	})
}

// launch starts the server of a node, and waits until ping is content with it.
func (n *mariadbNodes) launch(ctx context.Context, i int, ping func() error, args ...string) error {
	return n.run(i, func(host string, port int) (*process, error) {
		return n.flavour.launch(ctx, n.folder, fmt.Sprint("data", i), host, port, ping, args...)
	})
}

// Servers returns the URLs of the nodes: mysql://root@host:port/.
func (n *mariadbNodes) Servers() []string { return n.addrs("mysql://root@", 0, "/") }
