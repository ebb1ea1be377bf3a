package client_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/client"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/store"
)

// scriptedServer is a gRPC server whose answers come from functions of the test.
type scriptedServer struct {
	pb.UnimplementedHeadgateServiceServer
	batch func(context.Context) (*pb.BatchResponse, error)
	take  func(context.Context) (*pb.Decision, error)
}

// Batch implements pb.HeadgateServiceServer.
func (s *scriptedServer) Batch(ctx context.Context, _ *pb.BatchRequest) (*pb.BatchResponse, error) {
	return s.batch(ctx)
}

// Take implements pb.HeadgateServiceServer.
func (s *scriptedServer) Take(ctx context.Context, _ *pb.Request) (*pb.Decision, error) {
	return s.take(ctx)
}

// serveScript starts a gRPC server with the services that register adds, and returns a client of the server.
func serveScript(t *testing.T, cfg *client.Config, register func(*grpc.Server)) *client.Client {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return (&testServer{url: "grpc://" + l.Addr().String()}).client(t, cfg)
}

// TestInvalidAnswersOverGRPC checks the client's error for each kind of answer, of a headgate server and of others.
func TestInvalidAnswersOverGRPC(t *testing.T) {
	t.Parallel()
	problem := func(p api.Problem) error { return rpc.Status(&p).Err() }
	statusError := func(code codes.Code, domain string) error {
		st, err := status.New(code, "told").WithDetails(&errdetails.ErrorInfo{
			Domain: domain, Metadata: map[string]string{"title": "Busy", "status": "503", "type": api.Busy},
		})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	decision := &pb.Answer{Result: &pb.Answer_Decision{Decision: &pb.Decision{Allowed: true}}}
	for _, tt := range []struct {
		name     string
		answers  []*pb.Answer
		err      error
		want     error
		wantText string
	}{
		{"one", []*pb.Answer{decision}, nil, nil, ""},
		{"two", []*pb.Answer{decision, decision}, nil, store.ErrUnknownOutcome, "2 answers to 1"},
		{"none", nil, nil, store.ErrUnknownOutcome, "0 answers"},
		{"empty", []*pb.Answer{{}}, nil, store.ErrUnknownOutcome, "neither"},
		{"empty problem", []*pb.Answer{{Result: &pb.Answer_Problem{}}}, nil, store.ErrUnknownOutcome, "neither"},
		{
			"problem", []*pb.Answer{{Result: &pb.Answer_Problem{Problem: &pb.Problem{
				Title: "Bad request", Status: 400, Detail: "key: long", Field: "key",
			}}}}, nil, headgate.ErrInvalid, "key: long",
		},
		{"400", nil, problem(api.Problem{Title: "Bad", Status: 400, Detail: "body: bad"}), headgate.ErrInvalid, "body: bad"},
		{"413", nil, problem(api.Problem{Title: "Too large", Status: 413}), headgate.ErrInvalid, ""},
		{"501", nil, problem(api.Problem{Title: "Not supported", Status: 501}), headgate.ErrUnsupported, "Not supported"},
		{
			"away", nil, problem(api.Problem{Type: api.Unavailable, Title: "Away", Status: 503, Detail: "Nothing."}),
			store.ErrUnavailable, "Away: Nothing",
		},
		{"busy", nil, problem(api.Problem{Type: api.Busy, Title: "Busy", Status: 503}), store.ErrBusy, "Busy"},
		{"full", nil, problem(api.Problem{Type: api.Full, Title: "Full", Status: 503}), store.ErrFull, "Full"},
		{
			"unknown", nil, problem(api.Problem{Type: api.OutcomeUnknown, Title: "Away", Status: 503}),
			store.ErrUnknownOutcome, "Away",
		},
		{
			"late", nil, problem(api.Problem{Type: api.OutcomeUnknown, Title: "Late", Status: 504}),
			context.DeadlineExceeded, "Late",
		},
		{"a problem of ours", nil, statusError(codes.Unavailable, api.Domain), store.ErrBusy, "Busy"},
		{"a problem of others", nil, statusError(codes.Unavailable, "other"), store.ErrUnknownOutcome, "told"},
		{"a proxy is away", nil, status.Error(codes.Unavailable, "no upstream"), store.ErrUnknownOutcome, "no upstream"},
		{"too large to send", nil, status.Error(codes.ResourceExhausted, "large"), store.ErrUnknownOutcome, "large"},
		{"a fault", nil, status.Error(codes.Internal, "fault"), store.ErrUnknownOutcome, "fault"},
		{"late, of others", nil, status.Error(codes.DeadlineExceeded, "late"), context.DeadlineExceeded, ""},
		{"no token, of others", nil, status.Error(codes.Unauthenticated, "who?"), store.ErrSetup, "is it a headgate server?"},
		{"no such verb", nil, status.Error(codes.Unimplemented, "no"), store.ErrSetup, "is it a headgate server?"},
	} {
		s := &scriptedServer{batch: func(context.Context) (*pb.BatchResponse, error) {
			return &pb.BatchResponse{Answers: tt.answers}, tt.err
		}}
		c := serveScript(t, nil, func(g *grpc.Server) { pb.RegisterHeadgateServiceServer(g, s) })
		_, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a")
		if !errors.Is(err, tt.want) || tt.want != nil && !strings.Contains(err.Error(), tt.wantText) {
			t.Errorf("%s: got %v; want %v with %q", tt.name, err, tt.want, tt.wantText)
		}
		if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnknownOutcome) {
			t.Errorf("%s: got %v, want ErrUnknownOutcome too", tt.name, err)
		}
	}
	// A gRPC server without the service, and a server that does not speak gRPC.
	c := serveScript(t, nil, func(*grpc.Server) {})
	if _, err := c.Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrSetup) {
		t.Errorf("without the service: got %v, want ErrSetup", err)
	}
	httpServer := protocol("http").serve(t, serverOptions{})
	httpServer.url = strings.Replace(httpServer.url, "http:", "grpc:", 1)
	if _, err := httpServer.client(t, nil).Allow(t.Context(), headgate.MustNamed("few"), "a"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a server of HTTP/1: got %v, want ErrUnavailable", err)
	}
}

// TestTokenAndDeadlineReachTheServer checks that the server gets the token, and the deadline of the caller or the
// Config.
func TestTokenAndDeadlineReachTheServer(t *testing.T) {
	t.Parallel()
	var deadline, authorization atomic.Value
	s := &scriptedServer{take: func(ctx context.Context) (*pb.Decision, error) {
		end, _ := ctx.Deadline()
		deadline.Store(end)
		md, _ := metadata.FromIncomingContext(ctx)
		authorization.Store(strings.Join(md["authorization"], ","))
		return &pb.Decision{Allowed: true}, nil
	}}
	c := serveScript(t, &client.Config{Timeout: time.Hour, Token: "secret"},
		func(g *grpc.Server) { pb.RegisterHeadgateServiceServer(g, s) })
	shortCtx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	begin := time.Now()
	for ctx, timeout := range map[context.Context]time.Duration{t.Context(): time.Hour, shortCtx: 5 * time.Minute} {
		_, err := c.Once("one", 0).Take(ctx, headgate.Charge{Limit: headgate.MustNamed("few"), Key: "a"})
		// The deadline is sent as the remaining time, so allow a second for the way.
		got, _ := deadline.Load().(time.Time)
		if err != nil || got.Before(begin.Add(timeout-time.Second)) || got.After(time.Now().Add(timeout+time.Second)) {
			t.Errorf("got the deadline %s, %v; want %s after %s", got, err, timeout, begin)
		}
		if got := authorization.Load(); got != "Bearer secret" {
			t.Errorf("got authorization %q, want Bearer secret", got)
		}
	}
}

// TestInvalidRequestsAreNotSent checks that the client sends no invalid request, and none whose context has ended.
func TestInvalidRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	s := &scriptedServer{take: func(context.Context) (*pb.Decision, error) { calls.Add(1); return &pb.Decision{}, nil }}
	c := serveScript(t, nil, func(g *grpc.Server) { pb.RegisterHeadgateServiceServer(g, s) })
	charges := make([]headgate.Charge, 9_000)
	for i := range charges {
		charges[i] = headgate.Charge{Limit: headgate.MustNamed("few"), Key: strings.Repeat("k", 500)}
	}
	if _, err := c.Take(t.Context(), charges...); !errors.Is(err, headgate.ErrInvalid) ||
		!strings.Contains(err.Error(), "body: has") {
		t.Errorf("9,000 charges of 500 bytes: got %v, want ErrInvalid", err)
	}
	invalidID := c.Once("a\xff", 0)
	if _, err := invalidID.Take(t.Context(), charges[0]); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("an id that is not UTF-8: got %v, want ErrInvalid", err)
	}
	endedCtx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Once("one", 0).Take(endedCtx, charges[0])
	if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("with a context that has ended: got %v, want Canceled", err)
	}
	err = c.Call(t.Context(), "POST", "/v1/auth", nil, nil)
	if !errors.Is(err, headgate.ErrUnsupported) || !strings.Contains(err.Error(), "POST /v1/auth") {
		t.Errorf("a path that is no verb: got %v, want ErrUnsupported", err)
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("got %d calls at the server, want none", n)
	}
}
