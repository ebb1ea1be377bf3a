package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// The service of the tests, and its methods.
const (
	service = "/grpc.testing.TestService/"
	unary   = service + "UnaryCall"
	duplex  = service + "FullDuplexCall"
)

// testServer is a server of the test service, and a connection to it.
type testServer struct {
	grpc_testing.UnimplementedTestServiceServer
	conn     *grpc.ClientConn
	client   grpc_testing.TestServiceClient
	served   atomic.Int64
	messages atomic.Int64
	err      error // the result of unary calls, and of streams that end well
	hideErr  bool  // streams return err also if they cannot receive
}

func (srv *testServer) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	srv.served.Add(1)
	return &grpc_testing.SimpleResponse{}, srv.err
}

func (srv *testServer) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	srv.served.Add(1)
	return &grpc_testing.Empty{}, nil
}

// FullDuplexCall answers each message.
func (srv *testServer) FullDuplexCall(s grpc_testing.TestService_FullDuplexCallServer) error {
	srv.served.Add(1)
	for {
		_, err := s.Recv()
		if errors.Is(err, io.EOF) || err != nil && srv.hideErr {
			return srv.err
		}
		if err != nil {
			return err
		}
		srv.messages.Add(1)
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// addressListener is a listener whose connections come from an address. It is that address itself.
type addressListener struct {
	*bufconn.Listener
	address string
}

type addressConn struct {
	net.Conn
	remote net.Addr
}

func (l addressListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return addressConn{c, l}, err
}

func (l addressListener) Addr() net.Addr   { return l }
func (l addressListener) Network() string  { return "tcp" }
func (l addressListener) String() string   { return l.address }
func (c addressConn) RemoteAddr() net.Addr { return c.remote }

// withInterceptors returns the options of a server with the interceptors.
func withInterceptors(s *grpclimit.Server) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream)}
}

// start starts the server until the end of the test, and connects a client to it, from 192.0.2.1. It returns srv.
func (srv *testServer) start(t testing.TB, options []grpc.ServerOption, dial ...grpc.DialOption) *testServer {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, srv)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(addressListener{l, "192.0.2.1:1234"}) })
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:far", dial...)
	if err != nil {
		t.Fatal(err)
	}
	srv.conn, srv.client = conn, grpc_testing.NewTestServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		done.Wait()
	})
	return srv
}

// call makes a unary call, and returns the metadata of its header and of its trailer.
func (srv *testServer) call(ctx context.Context) (header, trailer metadata.MD, err error) {
	_, err = srv.client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, err
}

// stream opens a stream, and sends messages, each when the message before was answered. It counts the answers.
func (srv *testServer) stream(ctx context.Context, messages int) (answers int, trailer metadata.MD, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := srv.client.FullDuplexCall(ctx)
	if err != nil {
		return 0, nil, err
	}
	for range messages {
		if err := s.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return answers, nil, err
		}
		if _, err := s.Recv(); err != nil {
			return answers, s.Trailer(), err
		}
		answers++
	}
	_ = s.CloseSend()
	_, err = s.Recv()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answers, s.Trailer(), err
}

// mustServer returns a Server with a configuration. Without an OnError, an error fails the test.
func mustServer(t testing.TB, l headgate.Taker, cfg grpclimit.ServerConfig) *grpclimit.Server {
	t.Helper()
	if cfg.OnError == nil {
		cfg.OnError = func(_ *grpclimit.Call, err error) { t.Errorf("OnError: %v", err) }
	}
	s, err := grpclimit.NewServer(l, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// startServer starts a server with the interceptors of a configuration.
func startServer(t testing.TB, l headgate.Taker, cfg grpclimit.ServerConfig) *testServer {
	t.Helper()
	return (&testServer{}).start(t, withInterceptors(mustServer(t, l, cfg)))
}

func charges(list ...grpclimit.Charge) []grpclimit.Charge { return list }

func memoryLimiter() *headgate.Limiter { return headgate.New(memory.New(nil), nil) }

// usedUnits returns how many units of a limit a key has used.
func usedUnits(t testing.TB, l headgate.Operator, limit headgate.Limit, key string) string {
	t.Helper()
	s, err := l.Inspect(context.Background(), limit, key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

func namedLimit(name, notation string) headgate.Limit {
	limit, err := headgate.ParseNamed(name, notation)
	if err != nil {
		panic(err)
	}
	return limit
}

// details returns the details of a status, by their types.
func details(err error) (
	quota *errdetails.QuotaFailure, retry *errdetails.RetryInfo, badRequest *errdetails.BadRequest,
) {
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			quota = d
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.BadRequest:
			badRequest = d
		}
	}
	return quota, retry, badRequest
}

// expectCode fails the test unless an error has a code.
func expectCode(t testing.TB, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
	}
}
