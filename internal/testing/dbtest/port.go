package dbtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
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

// freePort returns a port of an address that is free, as are those at some
// distances above it, and that no other process of tests will take: were two
// servers to race for one, the slower would seem to answer when the faster does.
func freePort(host string, also ...int) (int, error) {
	distances := append([]int{0}, also...)
	n := lastPort - slices.Max(distances) - firstPort + 1
	start := rand.IntN(n)
	for i := range n {
		port := firstPort + (start+i)%n
		if claim(host, port, distances) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port of %s is free", host)
}

// claim takes ports. A claim is a listener in the abstract namespace of Unix
// sockets: one process has it, and it ends with that process.
func claim(host string, port int, distances []int) bool {
	var claims []net.Listener
	var config net.ListenConfig
	for _, distance := range distances {
		c, err := config.Listen(context.Background(), "unix", fmt.Sprintf("@headgate-port-%d", port+distance))
		if err == nil {
			claims = append(claims, c)
			c, err = config.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port+distance)))
		}
		if err != nil {
			for _, c := range claims {
				c.Close()
			}
			return false
		}
		c.Close()
	}
	claimed.Lock()
	defer claimed.Unlock()
	claimed.listeners = append(claimed.listeners, claims...)
	return true
}
