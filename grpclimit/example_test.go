package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/store/memory"
)

// connect starts a server with the test service, and returns a client of it. stop ends both.
func connect(server *grpc.Server, options ...grpc.DialOption) (client testpb.TestServiceClient, stop func()) {
	testpb.RegisterTestServiceServer(server, &testServer{})
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:api.example.com", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		}))...)
	if err != nil {
		panic(err)
	}
	return testpb.NewTestServiceClient(conn), func() {
		conn.Close()
		server.Stop()
	}
}

func ExampleUnaryServer() {
	limiter := headgate.New(memory.New(nil), nil) // one process; other stores are shared
	limit := headgate.MustParse("fixed-window 2/1h from-first")
	server := grpc.NewServer(grpc.UnaryInterceptor(grpclimit.UnaryServer(limiter, limit, grpclimit.ByMethod)))
	client, stop := connect(server)
	defer stop()

	for range 3 {
		_, err := client.EmptyCall(context.Background(), &testpb.Empty{})
		fmt.Println(status.Code(err))
		for _, detail := range status.Convert(err).Details() {
			if retry, ok := detail.(*errdetails.RetryInfo); ok {
				fmt.Println("try again in", retry.GetRetryDelay().AsDuration().Round(time.Minute))
			}
		}
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
	// try again in 1h0m0s
}

func ExampleStreamServer() {
	limiter := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	server := grpc.NewServer(grpc.StreamInterceptor(grpclimit.StreamServer(limiter, limit, grpclimit.ByMethod)))
	client, stop := connect(server)
	defer stop()

	for range 2 {
		stream, err := client.FullDuplexCall(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = stream.Send(&testpb.StreamingOutputCallRequest{}) // Recv says what is wrong
		_, err = stream.Recv()
		fmt.Println(status.Code(err))
		_ = stream.CloseSend()
	}
	// Output:
	// OK
	// ResourceExhausted
}

func ExampleNewServer() {
	limiter := headgate.New(memory.New(nil), nil)
	limits, err := grpclimit.NewServer(limiter, grpclimit.ServerConfig{
		Charges: []grpclimit.Charge{
			{
				Limit: headgate.MustParse("token-bucket 1000/s"),
				Key:   grpclimit.FirstOf(grpclimit.ByMetadata("api-key"), grpclimit.ByMethod),
			},
			{
				Methods:    []string{"/grpc.testing.TestService/FullDuplexCall"},
				Limit:      headgate.MustParse("fixed-window 2/1h from-first"),
				Key:        grpclimit.ByMethod,
				PerMessage: true,
			},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := connect(grpc.NewServer(grpc.UnaryInterceptor(limits.Unary), grpc.StreamInterceptor(limits.Stream)))
	defer stop()

	stream, err := client.FullDuplexCall(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		_ = stream.Send(&testpb.StreamingOutputCallRequest{})
		_, err = stream.Recv()
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}

func ExampleUnaryClient() {
	limiter := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 1/1h")
	client, stop := connect(grpc.NewServer(),
		grpc.WithUnaryInterceptor(grpclimit.UnaryClient(limiter, limit, grpclimit.ByTarget)))
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		_, err := client.EmptyCall(ctx, &testpb.Empty{}) // the second cannot start within a minute
		fmt.Println(status.Code(err), errors.Is(err, headgate.ErrDenied))
	}
	// Output:
	// OK false
	// ResourceExhausted true
}

func ExampleStreamClient() {
	limiter := headgate.New(memory.New(nil), nil)
	limit := headgate.MustParse("token-bucket 1/1h")
	client, stop := connect(grpc.NewServer(),
		grpc.WithStreamInterceptor(grpclimit.StreamClient(limiter, limit, grpclimit.ByTarget)))
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		_, err := client.FullDuplexCall(ctx)
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}

func ExampleNewClient() {
	theirs := headgate.New(memory.New(nil), nil)
	server := grpc.NewServer(grpc.UnaryInterceptor(
		grpclimit.UnaryServer(theirs, headgate.MustParse("fixed-window 1/1h from-first"), grpclimit.ByMethod)))

	ours := headgate.New(memory.New(nil), nil)
	limits, err := grpclimit.NewClient(ours, headgate.MustParse("token-bucket 1000/s"), &grpclimit.ClientConfig{
		MaxWait: time.Second,
		OnBackoff: func(b grpclimit.Backoff) {
			fmt.Println("the server asks to hold back for", b.For.Round(time.Minute))
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client, stop := connect(server, grpc.WithUnaryInterceptor(limits.Unary))
	defer stop()

	for range 3 {
		_, err := client.EmptyCall(context.Background(), &testpb.Empty{})
		fmt.Println(status.Code(err), "not sent:", errors.Is(err, headgate.ErrDenied))
	}
	// Output:
	// OK not sent: false
	// the server asks to hold back for 1h0m0s
	// ResourceExhausted not sent: false
	// ResourceExhausted not sent: true
}
