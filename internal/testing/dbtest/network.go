package dbtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// Network is a switch that connects this machine and the nodes of a cluster. Each node is in a Linux network namespace,
// so that it can be cut off from the others and still be reached from here. A Network needs root. A nil Network is the
// loopback device.
type Network struct {
	name   string // name of the switch, and prefix of the names of namespaces
	prefix string // the first three bytes of addresses
	nodes  int
	ports  int // number of ports in use
}

// NewNetwork makes a network of some nodes until the test ends. It skips the test if networks cannot be made.
func NewNetwork(tb testing.TB, nodes int) *Network {
	tb.Helper()
	if os.Getuid() != 0 {
		tb.Skip("network namespaces need root")
	}
	Program(tb, "ip", "iproute2")
	sweepNetworks()
	pid := os.Getpid()
	n := &Network{name: fmt.Sprintf("hg%d", pid), prefix: fmt.Sprintf("10.213.%d.", pid%250+1), nodes: nodes}
	tb.Cleanup(func() { removeNetwork(n.name) })
	lines := []string{
		"link add " + n.name + " type bridge", "link set " + n.name + " up",
		"addr add " + n.prefix + "1/24 dev " + n.name,
	}
	for i := range nodes {
		ns, port := fmt.Sprint(n.name, "n", i), fmt.Sprint(n.name, "v", i)
		lines = append(lines, "netns add "+ns, "link add "+port+" type veth peer name eth0 netns "+ns,
			"link set "+port+" master "+n.name+" up", "-n "+ns+" link set lo up",
			"-n "+ns+" addr add "+n.Host(i)+"/24 dev eth0", "-n "+ns+" link set eth0 up")
	}
	for _, line := range lines {
		if err := ip(line); err != nil {
			tb.Skipf("no network namespaces here: %v", err)
		}
	}
	return n
}

// ip runs the program ip with the arguments in a line.
func ip(line string) error {
	out, err := exec.CommandContext(context.Background(), "ip", strings.Fields(line)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", line, err, out)
	}
	return nil
}

// namespaces returns the words that ip netns list prints: names, and numbers.
func namespaces() []string {
	out, _ := exec.CommandContext(context.Background(), "ip", "netns", "list").Output()
	return strings.Fields(string(out))
}

func removeNetwork(name string) {
	for _, word := range namespaces() {
		if node, ok := strings.CutPrefix(word, name+"n"); ok {
			// The link would stay until the last process of the namespace has ended.
			_ = ip("link del " + name + "v" + node)
			_ = ip("netns del " + word)
		}
	}
	_ = ip("link del " + name)
}

// sweepNetworks removes the networks of processes that have ended.
func sweepNetworks() {
	for _, word := range namespaces() {
		name, _, hasNumber := strings.Cut(strings.TrimPrefix(word, "hg"), "n")
		pid, err := strconv.Atoi(name)
		if hasNumber && err == nil && strings.HasPrefix(word, "hg") && syscall.Kill(pid, 0) != nil {
			removeNetwork("hg" + name)
		}
	}
}

func (n *Network) Host(i int) string { return n.prefix + strconv.Itoa(10+i) }

// Part cuts a node off from all others: it drops its packets to them, so no connection works in either direction.
func (n *Network) Part(i int) error { return n.route("add", i) }

func (n *Network) Join(i int) error { return n.route("del", i) }

// route adds or deletes the routes that drop packets from a node to the others.
func (n *Network) route(action string, i int) error {
	for j := range n.nodes {
		if j == i {
			continue
		}
		if err := ip(fmt.Sprintf("-n %sn%d route %s blackhole %s/32", n.name, i, action, n.Host(j))); err != nil {
			return err
		}
	}
	return nil
}

// port returns a free port of a host. In a namespace, all ports are free.
func (n *Network) port(host string) int {
	if n == nil {
		return freePort(host)
	}
	n.ports++
	return firstPort + n.ports
}

// runAt changes a command to run in the namespace of the node with a host address.
func (n *Network) runAt(host string, cmd *exec.Cmd) {
	if n == nil {
		return
	}
	i, _ := strconv.Atoi(strings.TrimPrefix(host, n.prefix))
	args := []string{"ip", "netns", "exec", fmt.Sprint(n.name, "n", i-10)}
	if owner := cmd.SysProcAttr.Credential; owner != nil { // only root may enter, and then becomes the owner
		args = append(args, "setpriv", fmt.Sprintf("--reuid=%d", owner.Uid), fmt.Sprintf("--regid=%d", owner.Gid),
			"--clear-groups", "--pdeathsig=KILL")
		cmd.SysProcAttr.Credential = nil
	}
	args = append(append(args, cmd.Path), cmd.Args[1:]...)
	cmd.Path, _ = exec.LookPath("ip")
	cmd.Args = args
}
