package rpc_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// serve serves gRPC until the end of the test, and returns its server and its address.
func serve(t testing.TB, s store.Store, c *rpc.Config, more ...rpc.Service) (*rpc.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, s, c, more...), l.Addr().String()
}

func serveOn(t testing.TB, l net.Listener, s store.Store, c *rpc.Config, more ...rpc.Service) *rpc.Server {
	t.Helper()
	names, err := config.Parse("f.yaml", []byte("allow_notations: true\n"+
		"limits: {api: sliding-log 100/1h, login: 5/1m}\nplans: {gold: {api: sliding-log 200/1h}}"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	verbs := service.New(headgate.New(s, &headgate.Config{Names: names}), names, nil)
	if kept, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: quiet}); err == nil { // it keeps limits
		if _, _, err := kept.Apply(t.Context(), catalog.By{Author: "file"}, names.Defines(), catalog.Once); err != nil {
			t.Fatal(err)
		}
		verbs = service.New(headgate.New(s, &headgate.Config{Names: kept}), names, kept)
	}
	server := rpc.New(verbs, quiet, c)
	for _, v := range more {
		server.Register(v)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		_ = server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return server
}

// dial connects to an address.
func dial(t testing.TB, addr string, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
	}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// tokens opens a file of callers, one for each role, and returns their tokens.
func tokens(t testing.TB) (f *auth.File, of map[string]string) {
	t.Helper()
	return authtest.Open(t, auth.Entry{Name: "take", Role: "take"}, auth.Entry{Name: "read", Role: "read"},
		auth.Entry{Name: "admin", Role: "admin"})
}

// echo returns a service that returns its caller.
func echo(role auth.Role) rpc.Service {
	handler := func(_ any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor) (any, error) {
		in := new(healthpb.HealthCheckRequest)
		if err := decode(in); err != nil {
			return nil, err
		}
		return i(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/test.Echo/Who"},
			func(ctx context.Context, _ any) (any, error) {
				if in.Service == "panic" {
					panic(in.Service)
				}
				if end, ok := ctx.Deadline(); !ok || end.After(time.Now().Add(service.Deadline)) {
					return nil, status.Error(codes.Internal, "the call has no deadline")
				}
				return &healthpb.HealthCheckRequest{Service: auth.From(ctx).String()}, nil
			})
	}
	return rpc.Service{
		Desc: &grpc.ServiceDesc{
			ServiceName: "test.Echo", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "Who", Handler: handler}},
		},
		Impl: struct{}{}, Role: func(string) auth.Role { return role },
	}
}

// TestTheContextOfACallEndsWithTheCall looks at a context after its call: a timer for its deadline that went on
// would hold memory for seconds after each call.
func TestTheContextOfACallEndsWithTheCall(t *testing.T) {
	t.Parallel()
	seen := make(chan context.Context, 1)
	e := echo(auth.RoleTake)
	inner := e.Desc.Methods[0].Handler
	e.Desc.Methods[0].Handler = func(
		impl any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor,
	) (any, error) {
		seen <- ctx
		return inner(impl, ctx, decode, i)
	}
	_, addr := serve(t, memory.New(nil), nil, e)
	if _, err := who(t.Context(), dial(t, addr), ""); err != nil {
		t.Fatal(err)
	}
	ctx := <-seen
	await.Receive(t, "the context to end", ctx.Done())
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the context says %v after its call", err)
	}
}

func who(ctx context.Context, conn *grpc.ClientConn, says string) (string, error) {
	out := new(healthpb.HealthCheckRequest)
	err := conn.Invoke(ctx, "/test.Echo/Who", &healthpb.HealthCheckRequest{Service: says}, out)
	return out.Service, err
}

func TestCallersAreKnownByTheirTokens(t *testing.T) {
	t.Parallel()
	file, of := tokens(t)
	_, addr := serve(t, memory.New(nil), &rpc.Config{Tokens: file}, echo(auth.RoleTake))
	conn := dial(t, addr)
	for _, c := range []struct {
		name, value string
		want        string
		code        codes.Code
	}{
		{"authorization", "Bearer " + of["take"], "take", codes.OK},
		{"authorization", "bearer " + of["admin"], "admin", codes.OK},
		{"headgate-token", of["take"], "take", codes.OK},
		{"authorization", "Bearer " + of["read"], "", codes.PermissionDenied},
		{"authorization", "Bearer " + of["take"] + "x", "", codes.Unauthenticated},
		{"authorization", "Basic eDp5", "", codes.Unauthenticated},
		{"headgate-token", "hgt_wrong", "", codes.Unauthenticated},
		{"x-other", "x", "", codes.Unauthenticated},
	} {
		got, err := who(metadata.AppendToOutgoingContext(t.Context(), c.name, c.value), conn, "")
		if got != c.want || status.Code(err) != c.code {
			t.Errorf("%s: %s: %q, %v, want %q, %s", c.name, c.value, got, err, c.want, c.code)
		}
		if err != nil && (!strings.Contains(err.Error(), "Nothing was done") || len(status.Convert(err).Details()) == 0) {
			t.Errorf("%v, %v", err, status.Convert(err).Details())
		}
	}
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health without a token: %v, %v", h, err)
	}
}

func TestAdminActionsMayBeElsewhere(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), &rpc.Config{NoAdmin: true}, echo(auth.RoleAdmin))
	if _, err := who(t.Context(), dial(t, addr), ""); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestACallThatPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil, echo(auth.RoleTake))
	conn := dial(t, addr)
	if _, err := who(t.Context(), conn, "panic"); status.Code(err) != codes.Unknown ||
		!strings.Contains(err.Error(), "not known whether") {
		t.Error(err)
	}
	if name, err := who(t.Context(), conn, ""); err != nil || name != "the caller" {
		t.Errorf("%q, %v", name, err)
	}
}

func TestHealthIsThatOfTheStore(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	server, addr := serve(t, st, nil, echo(auth.RoleTake))
	h := healthpb.NewHealthClient(dial(t, addr))
	for _, name := range []string{"", "test.Echo", "grpc.health.v1.Health"} {
		r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Error(err)
	}
	list, err := h.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || list.Statuses["test.Echo"].GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", list, err)
	}
	watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := watch.Recv()
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", r, err)
	}
	st.Close()
	if r, err = watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("of a store that is away: %v, %v", r, err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Shutdown(within); err != nil {
		t.Errorf("a client that watches keeps the server from stopping: %v", err)
	}
}
