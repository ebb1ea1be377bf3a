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
func serve(t testing.TB, s store.Store, c *rpc.Config, services ...rpc.Service) (*rpc.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, l, s, c, services...), l.Addr().String()
}

// serveOn serves gRPC on a listener until the end of the test. The limits are those of a catalog if s can have one.
func serveOn(t testing.TB, l net.Listener, s store.Store, c *rpc.Config, services ...rpc.Service) *rpc.Server {
	t.Helper()
	names, err := config.Parse("f.yaml", []byte("allow_notations: true\n"+
		"limits: {api: sliding-log 100/1h, login: 5/1m}\nplans: {gold: {api: sliding-log 200/1h}}"))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	svc := service.New(headgate.New(s, &headgate.Config{Names: names}), names, nil)
	if limits, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: log}); err == nil {
		by := catalog.By{Author: "file"}
		if _, _, err := limits.Apply(t.Context(), by, names.CatalogFile(), catalog.ApplyOnce); err != nil {
			t.Fatal(err)
		}
		svc = service.New(headgate.New(s, &headgate.Config{Names: limits}), names, limits)
	}
	server := rpc.New(svc, log, c)
	for _, v := range services {
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

// openTokens opens a file of callers, one for each role, and returns their tokens by role.
func openTokens(t testing.TB) (f *auth.File, tokens map[string]string) {
	t.Helper()
	return authtest.Open(t, auth.Entry{Name: "take", Role: "take"}, auth.Entry{Name: "read", Role: "read"},
		auth.Entry{Name: "admin", Role: "admin"})
}

// echo returns a service that answers with its caller, panics if it is sent "panic", and fails without a deadline.
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
				return &healthpb.HealthCheckRequest{Service: auth.CallerOf(ctx).String()}, nil
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

// TestTheContextOfACallEndsWithTheCall checks that a call's context is canceled; otherwise its timer would hold memory.
func TestTheContextOfACallEndsWithTheCall(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 1)
	e := echo(auth.RoleTake)
	inner := e.Desc.Methods[0].Handler
	e.Desc.Methods[0].Handler = func(
		impl any, ctx context.Context, decode func(any) error, i grpc.UnaryServerInterceptor,
	) (any, error) {
		contexts <- ctx
		return inner(impl, ctx, decode, i)
	}
	_, addr := serve(t, memory.New(nil), nil, e)
	if _, err := callEcho(t.Context(), dial(t, addr), ""); err != nil {
		t.Fatal(err)
	}
	ctx := <-contexts
	await.Receive(t, "the context to end", ctx.Done())
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the error of the context after its call: got %v, want %v", err, context.Canceled)
	}
}

// callEcho sends a text to echo, and returns the caller.
func callEcho(ctx context.Context, conn *grpc.ClientConn, text string) (string, error) {
	out := new(healthpb.HealthCheckRequest)
	err := conn.Invoke(ctx, "/test.Echo/Who", &healthpb.HealthCheckRequest{Service: text}, out)
	return out.Service, err
}

func TestCallersAreKnownByTheirTokens(t *testing.T) {
	t.Parallel()
	file, tokens := openTokens(t)
	_, addr := serve(t, memory.New(nil), &rpc.Config{Tokens: file}, echo(auth.RoleTake))
	conn := dial(t, addr)
	for _, c := range []struct {
		name, value string
		want        string
		code        codes.Code
	}{
		{"authorization", "Bearer " + tokens["take"], "take", codes.OK},
		{"authorization", "bearer " + tokens["admin"], "admin", codes.OK},
		{"headgate-token", tokens["take"], "take", codes.OK},
		{"authorization", "Bearer " + tokens["read"], "", codes.PermissionDenied},
		{"authorization", "Bearer " + tokens["take"] + "x", "", codes.Unauthenticated},
		{"authorization", "Basic eDp5", "", codes.Unauthenticated},
		{"headgate-token", "hgt_wrong", "", codes.Unauthenticated},
		{"x-other", "x", "", codes.Unauthenticated},
	} {
		got, err := callEcho(metadata.AppendToOutgoingContext(t.Context(), c.name, c.value), conn, "")
		if got != c.want || status.Code(err) != c.code {
			t.Errorf("%s: %s: %q, %v, want %q, %s", c.name, c.value, got, err, c.want, c.code)
		}
		if err != nil && (!strings.Contains(err.Error(), "Nothing was done") || len(status.Convert(err).Details()) == 0) {
			t.Errorf("got %v, %v, want details and that nothing was done", err, status.Convert(err).Details())
		}
	}
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health without a token: %v, %v", h, err)
	}
}

func TestNoAdminRefusesAdminActions(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), &rpc.Config{NoAdmin: true}, echo(auth.RoleAdmin))
	if _, err := callEcho(t.Context(), dial(t, addr), ""); status.Code(err) != codes.PermissionDenied {
		t.Errorf("got %v, want PermissionDenied", err)
	}
}

func TestACallThatPanicsFailsAlone(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil, echo(auth.RoleTake))
	conn := dial(t, addr)
	if _, err := callEcho(t.Context(), conn, "panic"); status.Code(err) != codes.Unknown ||
		!strings.Contains(err.Error(), "not known whether") {
		t.Errorf("got %v, want Unknown", err)
	}
	if name, err := callEcho(t.Context(), conn, ""); err != nil || name != "the caller" {
		t.Errorf("the next call: got %q, %v, want the caller", name, err)
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
			t.Errorf("%q: got %v, %v, want SERVING", name, r, err)
		}
	}
	if _, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "x"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: got %v, want NotFound", err)
	}
	list, err := h.List(t.Context(), &healthpb.HealthListRequest{})
	if err != nil || list.Statuses["test.Echo"].GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("list: got %v, %v, want test.Echo SERVING", list, err)
	}
	watch, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := watch.Recv()
	if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("watch: got %v, %v, want SERVING", r, err)
	}
	st.Close()
	if r, err = watch.Recv(); err != nil || r.Status != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("watch with a closed store: got %v, %v, want NOT_SERVING", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Errorf("a client that watches keeps the server from stopping: %v", err)
	}
}
