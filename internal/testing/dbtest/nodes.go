package dbtest

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// nodes are the servers of a cluster, numbered from 0. Kill and Restart of one node are not for concurrent use.
type nodes struct {
	folder *folder
	list   []node
	Stop   func() // ends all nodes and removes their files
}

type node struct {
	host    string
	ports   []int    // the first port is for clients
	process *process // nil: the node could not be started
}

// begin gives each node an address and ports, and starts all nodes with create. hosts returns the address of a node if
// the folder has no network.
func (n *nodes) begin(f *folder, hosts func(i int) string, ports int, create func()) {
	n.folder = f
	n.Stop = sync.OnceFunc(func() {
		for i := range n.list {
			n.Kill(i)
		}
		f.remove()
	})
	defer onFailure(n.Stop)
	if f.network != nil {
		hosts = f.network.Host
	}
	for i := range n.list {
		node := &n.list[i]
		node.host = hosts(i)
		for range ports {
			node.ports = append(node.ports, f.network.port(node.host))
		}
	}
	create()
}

// loopbackHost returns the address of a node that may share its address with other nodes.
func loopbackHost(int) string { return loopback }

func (n *nodes) run(i int, start func(host string, port int) *process) {
	defer wrapFailure("node %d", i)
	node := &n.list[i]
	node.process = start(node.host, node.ports[0])
}

// addrs returns host:port of each node, for the port with an index, between two texts.
func (n *nodes) addrs(prefix string, port int, suffix string) []string {
	list := make([]string, len(n.list))
	for i, m := range n.list {
		list[i] = prefix + net.JoinHostPort(m.host, strconv.Itoa(m.ports[port])) + suffix
	}
	return list
}

func (n *nodes) Kill(i int) {
	if p := n.list[i].process; p != nil {
		p.end(syscall.SIGKILL)
	}
}

// Pause stops a node without ending it; Resume lets it go on.
func (n *nodes) Pause(i int) { n.list[i].process.signal(syscall.SIGSTOP) }

func (n *nodes) Resume(i int) { n.list[i].process.signal(syscall.SIGCONT) }

// mariadbNodes are the nodes of a cluster that speaks MySQL's protocol.
type mariadbNodes struct {
	nodes
	flavour *flavour
}

// begin starts three nodes with create. The folder has the files of an empty server in data.
func (n *mariadbNodes) begin(ctx context.Context, network *Network, hosts func(i int) string, ports int,
	create func(f *folder),
) {
	f := new(Config).folder("mariadb", "mysql")
	f.network, n.list = network, make([]node, 3)
	n.nodes.begin(f, hosts, ports, func() {
		n.flavour.copyTemplate(ctx, f)
		create(f)
	})
}

// launch starts the server of a node, and waits until ping succeeds.
func (n *mariadbNodes) launch(ctx context.Context, i int, ping func() error, args ...string) {
	n.run(i, func(host string, port int) *process {
		return n.flavour.launch(ctx, n.folder, fmt.Sprint("data", i), host, port, ping, args...)
	})
}

// Servers returns the URLs of the nodes: mysql://root@host:port/.
func (n *mariadbNodes) Servers() []string { return n.addrs("mysql://root@", 0, "/") }
