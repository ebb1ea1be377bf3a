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
	span := 0
	for _, distance := range also {
		span = max(span, distance)
	}
	n := lastPort - span - firstPort + 1
	start := rand.IntN(n)
	for i := range n {
		port := firstPort + (start+i)%n
		if claim(host, port, append([]int{0}, also...)) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port of %s is free", host)
}

// claim takes ports. A claim is a listener in the abstract namespace of Unix
// sockets: one process has it, and it ends with that process.
func claim(host string, port int, distances []int) (ok bool) {
	var claims []net.Listener
	defer func() {
		if !ok {
			for _, c := range claims {
				c.Close()
			}
			return
		}
		claimed.Lock()
		claimed.listeners = append(claimed.listeners, claims...)
		claimed.Unlock()
	}()
	var config net.ListenConfig
	for _, distance := range distances {
		c, err := config.Listen(context.Background(), "unix", fmt.Sprintf("@headgate-port-%d", port+distance))
		if err != nil {
			return false
		}
		claims = append(claims, c)
		l, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(host, strconv.Itoa(port+distance)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
