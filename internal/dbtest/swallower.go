package dbtest

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

// Swallower is a proxy that forwards what clients send, and while it is told to
// lose answers cuts the connection with the answer in its hand: what a client sees
// when the network breaks after its statement was done.
type Swallower struct {
	Addr string // host:port to connect to
	lose atomic.Bool
}

// Swallow starts a proxy in front of a server, for as long as the test runs.
func Swallow(tb testing.TB, target string) *Swallower {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	s := &Swallower{Addr: l.Addr().String()}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(server, client)
				_ = server.Close()
			}()
			go s.answer(client, server)
		}
	}()
	return s
}

// Lose says whether answers get lost from now on.
func (s *Swallower) Lose(lose bool) { s.lose.Store(lose) }

func (s *Swallower) answer(client, server net.Conn) {
	defer func() { _ = client.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := server.Read(buf)
		if err != nil || s.lose.Load() {
			return // with the answer in hand
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}
