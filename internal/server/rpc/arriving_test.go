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

// stuck is a connection that sends so many bytes and then no more, until it is closed.
type stuck struct {
	net.Conn
	left   atomic.Int64
	closed chan struct{}
	once   sync.Once
}

func (s *stuck) Write(b []byte) (int, error) {
	if s.left.Add(-int64(len(b))) < 0 {
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.Conn.Write(b)
}

func (s *stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// TestIncompleteMessagesAreBounded has 40 callers send half of a message of 3 MiB each. Those that began first are
// ended, but for a few, and others are answered.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	defer s.Close()
	server, addr := serve(t, s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	large := strings.Repeat("k", 3<<20)
	var all sync.WaitGroup
	var ended atomic.Int64
	var conns sync.Map
	const calls = 40
	for range calls {
		conn := dial(t, addr, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			half := &stuck{Conn: conn, closed: make(chan struct{})}
			half.left.Store(3 << 19)
			conns.Store(half, nil)
			return half, nil
		}))
		all.Go(func() {
			request := &pb.Request{Charges: []*pb.Charge{{Limit: "api", Key: &large}}}
			if _, err := pb.NewHeadgateServiceClient(conn).Take(ctx, request); err == nil {
				t.Error("half a message was answered")
			} else if ctx.Err() == nil {
				ended.Add(1)
			}
		})
	}
	await.Until(t, "that calls are ended", func() bool { return ended.Load() >= calls-16 && server.Arriving() <= 16 })
	few := &pb.Request{Charges: []*pb.Charge{{Limit: "api", Key: new("k")}}}
	if _, err := pb.NewHeadgateServiceClient(dial(t, addr)).Take(t.Context(), few); err != nil {
		t.Errorf("others: %v", err)
	}
	cancel()
	all.Wait()
	await.Until(t, "that nobody is waited for", func() bool { return server.Arriving() == 0 })
	conns.Range(func(half, _ any) bool { _ = half.(*stuck).Close(); return true }) // else grpc waits to say goodbye
}

// TestIncompleteMessagesOfAnyone: few of those that need no token may be incomplete at a time.
func TestIncompleteMessagesOfAnyone(t *testing.T) {
	t.Parallel()
	s := memory.New(nil)
	defer s.Close()
	file, _ := tokens(t)
	server, addr := serve(t, s, &rpc.Config{Tokens: file})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var refused atomic.Int64
	conn := dial(t, addr)
	const calls = 40
	for range calls {
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, healthpb.Health_Check_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			if err := stream.RecvMsg(new(healthpb.HealthCheckResponse)); status.Code(err) == codes.Unavailable ||
				status.Code(err) == codes.ResourceExhausted {
				refused.Add(1)
			}
		})
	}
	await.Until(t, "that most are refused", func() bool { return refused.Load() == calls-16 })
	cancel()
	all.Wait()
	await.Until(t, "that nobody is waited for", func() bool { return server.Arriving() == 0 })
	for range 3 * calls { // complete ones are answered, however many there are
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}
