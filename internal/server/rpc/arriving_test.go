package rpc_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/store/memory"
)

// stalledConn is a connection that sends some bytes, and then none until it is closed.
type stalledConn struct {
	net.Conn
	budget    atomic.Int64 // how many bytes it still sends
	closed    chan struct{}
	closeOnce sync.Once
}

func (s *stalledConn) Write(b []byte) (int, error) {
	if s.budget.Add(-int64(len(b))) < 0 {
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.Conn.Write(b)
}

func (s *stalledConn) Close() error {
	s.closeOnce.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// TestIncompleteMessagesAreBounded has 40 callers send half of a message of 3 MiB each. It checks that all but 16 of
// their calls are ended, and that other callers are answered.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	defer s.Close()
	server, addr := serve(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	large := strings.Repeat("k", 3<<20)
	var wg sync.WaitGroup
	var ended atomic.Int64
	var conns sync.Map
	const calls = 40
	for range calls {
		conn := dial(t, addr, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			stalled := &stalledConn{Conn: conn, closed: make(chan struct{})}
			stalled.budget.Store(3 << 19) // half of 3 MiB
			conns.Store(stalled, nil)
			return stalled, nil
		}))
		wg.Go(func() {
			request := &pb.Request{Charges: []*pb.Charge{{Limit: "api", Key: &large}}}
			if _, err := pb.NewHeadgateServiceClient(conn).Take(ctx, request); err == nil {
				t.Error("half a message was answered")
			} else if ctx.Err() == nil {
				ended.Add(1)
			}
		})
	}
	await.Until(t, "that calls are ended", func() bool { return ended.Load() >= calls-16 && server.Arriving() <= 16 })
	small := &pb.Request{Charges: []*pb.Charge{{Limit: "api", Key: new("k")}}}
	if _, err := pb.NewHeadgateServiceClient(dial(t, addr)).Take(t.Context(), small); err != nil {
		t.Errorf("another caller: %v, want an answer", err)
	}
	cancel()
	wg.Wait()
	await.Until(t, "that nobody is waited for", func() bool { return server.Arriving() == 0 })
	conns.Range(func(conn, _ any) bool { _ = conn.(*stalledConn).Close(); return true }) // grpc would wait to write
}

// TestIncompleteMessagesOfAnyone checks that of 40 calls without a token, all but 16 that send no message are refused.
func TestIncompleteMessagesOfAnyone(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	defer s.Close()
	file, _ := openTokens(t)
	server, addr := serve(t, s, &rpc.Config{Tokens: file})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var refused atomic.Int64
	conn := dial(t, addr)
	const calls = 40
	for range calls {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, healthpb.Health_Check_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			if err := stream.RecvMsg(new(healthpb.HealthCheckResponse)); status.Code(err) == codes.Unavailable ||
				status.Code(err) == codes.ResourceExhausted {
				refused.Add(1)
			}
		})
	}
	await.Until(t, "that most are refused", func() bool { return refused.Load() == calls-16 })
	cancel()
	wg.Wait()
	await.Until(t, "that nobody is waited for", func() bool { return server.Arriving() == 0 })
	for range 3 * calls { // complete messages are answered, however many there are
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}
