package dbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Servers get ports below those that the kernel gives to outgoing connections (32768 and up). Such a connection could
// take a port between the check that it is free and the start of the server.
const firstPort, lastPort = 20000, 32767

// loopback is the address of servers that need no address of their own.
const loopback = "127.0.0.1"

// claims keeps the claims of this process until it ends: a test may connect to a server that it has stopped, and no
// other server may answer there.
var claims struct {
	sync.Mutex
	listeners []net.Listener
}

// freePort returns a free port of an address, and claims it against other test processes: if two servers raced for one
// port, the faster one would answer the pings for the slower one.
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

// claim claims a port, if it is free. A claim is a listener in the abstract namespace of Unix sockets: only one process
// can have it, and it ends with that process.
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
	claims.Lock()
	defer claims.Unlock()
	claims.listeners = append(claims.listeners, c)
	return true
}
