package doctest

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// greetingAnswers is how many answers of a connection are never lost: a client that loses the answers of its log-in
// again and again gives up before its first request.
const greetingAnswers = 2

// startLossyProxy starts a proxy in front of a server, and returns the address of the proxy. At random, the proxy loses
// one of lossInterval answers, by cutting the connection: the statement was done, but its caller does not know.
func startLossyProxy(t *testing.T, target string, lossInterval int) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(4711, 1))
	lose := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(lossInterval) == 0
	}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				server.Close()
			}()
			go func() {
				defer client.Close()
				defer server.Close()
				buf := make([]byte, 1<<16)
				for i := 0; ; i++ {
					n, err := server.Read(buf)
					if err != nil || i >= greetingAnswers && lose() {
						return
					}
					if _, err := client.Write(buf[:n]); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
