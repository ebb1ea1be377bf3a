package dbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports are taken from below those that the kernel gives to outgoing
// connections (32768 and up), one of which could come between the look whether
// a port is free and the start of the server.
const firstPort, lastPort = 20000, 32767

// loopback is where servers listen that need no address of their own.
const loopback = "127.0.0.1"

// claimed keeps the claims of this process to its end: a test may ask a server
// that it has stopped, and nobody else's is to answer there.
var claimed struct {
	sync.Mutex
	listeners []net.Listener
}

// freePort returns a port of an address that is free, and that no other process
// of tests will take: were two servers to race for one, the slower would seem to
// answer when the faster does.
func freePort(host string) int {
	const n = lastPort - firstPort + 1
	start := rand.IntN(n)
	for i := range n {
		port := firstPort + (start+i)%n
		if claim(host, port) {
			return port
		}
	}
	panic(failure{fmt.Errorf("no port of %s is free", host)})
}

// claim takes a port. A claim is a listener in the abstract namespace of Unix
// sockets: one process has it, and it ends with that process.
func claim(host string, port int) bool {
	var config net.ListenConfig
	c, err := config.Listen(context.Background(), "unix", fmt.Sprintf("@headgate-port-%d", port))
	if err != nil {
		return false
	}
	l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		c.Close()
		return false
	}
	l.Close()
	claimed.Lock()
	defer claimed.Unlock()
	claimed.listeners = append(claimed.listeners, c)
	return true
}
