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

// The methods of the tests.
const (
	service = "/grpc.testing.TestService/"
	unary   = service + "UnaryCall"
	duplex  = service + "FullDuplexCall"
)

// far is a server of a test, and a connection to it.
type far struct {
	grpc_testing.UnimplementedTestServiceServer
	conn     *grpc.ClientConn
	client   grpc_testing.TestServiceClient
	served   atomic.Int64
	messages atomic.Int64
	err      error // with which unary calls end
	silent   bool  // streams end without an error, whatever happened
}

func (f *far) UnaryCall(context.Context, *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	f.served.Add(1)
	return &grpc_testing.SimpleResponse{}, f.err
}

func (f *far) EmptyCall(context.Context, *grpc_testing.Empty) (*grpc_testing.Empty, error) {
	f.served.Add(1)
	return &grpc_testing.Empty{}, nil
}

// FullDuplexCall answers each message.
func (f *far) FullDuplexCall(s grpc_testing.TestService_FullDuplexCallServer) error {
	f.served.Add(1)
	for {
		_, err := s.Recv()
		if errors.Is(err, io.EOF) || err != nil && f.silent {
			return f.err
		}
		if err != nil {
			return err
		}
		f.messages.Add(1)
		if err := s.Send(&grpc_testing.StreamingOutputCallResponse{}); err != nil {
			return err
		}
	}
}

// addressed is a listener whose connections come from an address.
type addressed struct {
	*bufconn.Listener
	from string
}

type connection struct {
	net.Conn
	from net.Addr
}

func (a addressed) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	return connection{c, a}, err
}

func (a addressed) Addr() net.Addr        { return a }
func (a addressed) Network() string       { return "tcp" }
func (a addressed) String() string        { return a.from }
func (c connection) RemoteAddr() net.Addr { return c.from }
func limited(s *grpclimit.Server) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.UnaryInterceptor(s.Unary), grpc.StreamInterceptor(s.Stream)}
}

// start starts the server, with clients from 192.0.2.1.
func (f *far) start(t testing.TB, options []grpc.ServerOption, dial ...grpc.DialOption) *far {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(options...)
	grpc_testing.RegisterTestServiceServer(server, f)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(addressed{l, "192.0.2.1:1234"}) })
	dial = append(dial, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	conn, err := grpc.NewClient("passthrough:far", dial...)
	if err != nil {
		t.Fatal(err)
	}
	f.conn, f.client = conn, grpc_testing.NewTestServiceClient(conn)
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		done.Wait()
	})
	return f
}

// call makes a unary call, and returns its metadata, of the header and of the trailer.
func (f *far) call(ctx context.Context) (header, trailer metadata.MD, err error) {
	_, err = f.client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.Header(&header), grpc.Trailer(&trailer))
	return header, trailer, err
}

// talk opens a stream, and sends so many messages, each when the one before was answered. It returns how many were.
func (f *far) talk(ctx context.Context, messages int) (answered int, trailer metadata.MD, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := f.client.FullDuplexCall(ctx)
	if err != nil {
		return 0, nil, err
	}
	for range messages {
		if err := s.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil && !errors.Is(err, io.EOF) {
			return answered, nil, err
		}
		if _, err := s.Recv(); err != nil {
			return answered, s.Trailer(), err
		}
		answered++
	}
	_ = s.CloseSend()
	_, err = s.Recv()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return answered, s.Trailer(), err
}

// must returns a NewServer, or fails.
func must(t testing.TB, l headgate.Taker, cfg grpclimit.ServerConfig) *grpclimit.Server {
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

func charges(list ...grpclimit.Charge) []grpclimit.Charge { return list }

func memoryLimiter() *headgate.Limiter { return headgate.New(memory.New(nil), nil) }

// used returns how many units of a limit a key has used.
func used(t testing.TB, l headgate.Operator, limit headgate.Limit, key string) string {
	t.Helper()
	s, err := l.Inspect(context.Background(), limit, key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

func named(name, notation string) headgate.Limit {
	limit, err := headgate.ParseNamed(name, notation)
	if err != nil {
		panic(err)
	}
	return limit
}

// details returns those of a status that the tests know.
func details(err error) (quota *errdetails.QuotaFailure, retry *errdetails.RetryInfo, bad *errdetails.BadRequest) {
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			quota = d
		case *errdetails.RetryInfo:
			retry = d
		case *errdetails.BadRequest:
			bad = d
		}
	}
	return quota, retry, bad
}

// expect reports a code that is not the one that is wanted.
func expect(t testing.TB, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}
