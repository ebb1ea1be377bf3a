// Package rpc serves gRPC: it authenticates callers, bounds the resources of requests, reports health, and shuts down
// gracefully. It serves headgate's own service, and registered services, such as Envoy's.
//
// A caller is authenticated before its message is read: a call can be refused by its headers alone. Web pages need no
// check: a browser sends nothing with the content type of gRPC to another origin without a preflight, refused here.
package rpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
)

// maxMessage is how many bytes a message may have, in both directions: as many as a body of JSON.
const maxMessage = 4 << 20

// maxStreams is how many calls of one connection may be under way. Clients wait if there are more.
const maxStreams = 250

// Config adjusts a Server. It may be nil, and every field may be zero.
type Config struct {
	// Tokens lists the callers with their tokens and certificates. A caller by a Unix socket needs neither. Nil:
	// every caller may do everything.
	Tokens *auth.File
	// TLS encrypts the connections, and may verify certificates of clients. Nil: connections are not encrypted.
	TLS *tls.Config
	// Load bounds the resources of requests. Nil: load.New(0, 0).
	Load *load.Load
	// MaxConnections is how many connections may be open. Zero: the default of [edge.BoundListener].
	MaxConnections int
	// NoAdmin refuses admin actions, which another address serves.
	NoAdmin bool
	// Unary and Stream run before the interceptors of the server.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
}

// Service is a service that a Server serves.
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
	// Role returns the role that a method needs; the name is without the service. Nil: [auth.RoleTake] for all.
	Role func(method string) auth.Role
	// Objects returns how many charges a message has, or objects that take as much memory. Nil: one.
	Objects func(message any) int
}

// method describes a method of a registered service.
type method struct {
	unary   bool
	role    auth.Role
	objects func(any) int
}

// Server serves gRPC, on one listener or several. It is created with [New], and safe for concurrent use once services
// are registered.
type Server struct {
	service  *service.Service
	log      *slog.Logger
	config   Config
	methods  map[string]method // by the full name
	services map[string]bool   // services whose health is reported
	grpc     *grpc.Server
	arriving arrivingCalls
	stopping chan struct{} // closed when the server begins to stop
	stop     sync.Once
}

// New returns a server of headgate's own service, health and reflection. It logs a line for each request that fails by
// an error of the server, so log should be limited by package lograte.
func New(s *service.Service, log *slog.Logger, c *Config) *Server {
	out := &Server{
		service: s, log: log, methods: map[string]method{}, services: map[string]bool{"": true},
		stopping: make(chan struct{}), config: *cmp.Or(c, &Config{}),
	}
	out.config.Load = cmp.Or(out.config.Load, load.New(0, 0))
	secure := insecure.NewCredentials()
	if out.config.TLS != nil {
		secure = credentials.NewTLS(out.config.TLS)
	}
	out.grpc = grpc.NewServer(
		grpc.Creds(secure), grpc.ForceServerCodecV2(newCodec()), grpc.InTapHandle(out.admitCall),
		grpc.ChainUnaryInterceptor(append(slices.Clone(out.config.Unary), out.interceptUnary)...),
		grpc.ChainStreamInterceptor(append(slices.Clone(out.config.Stream), out.interceptStream)...),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(16<<10), grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 10 * time.Second, PermitWithoutStream: true,
		}),
	)
	healthpb.RegisterHealthServer(registrar{out}, &health{server: out})
	described := reflection.ServerOptions{Services: registrar{out}}
	reflectionpb.RegisterServerReflectionServer(registrar{out}, reflection.NewServerV1(described))
	reflectionalpha.RegisterServerReflectionServer(registrar{out}, reflection.NewServer(described))
	out.Register((&verbs{server: out}).service())
	return out
}

// Register adds a service, before the server serves.
func (s *Server) Register(v Service) {
	role := v.Role
	if role == nil {
		role = func(string) auth.Role { return auth.RoleTake }
	}
	add := func(name string, unary bool) {
		s.methods["/"+path.Join(v.Desc.ServiceName, name)] = method{unary: unary, role: role(name), objects: v.Objects}
	}
	for _, m := range v.Desc.Methods {
		add(m.MethodName, true)
	}
	for _, m := range v.Desc.Streams {
		add(m.StreamName, false)
	}
	s.services[v.Desc.ServiceName] = true
	s.grpc.RegisterService(v.Desc, v.Impl)
}

// registrar registers services that anyone may call.
type registrar struct{ *Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	r.Register(Service{Desc: desc, Impl: impl, Role: func(string) auth.Role { return auth.Anyone }})
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (r registrar) GetServiceInfo() map[string]grpc.ServiceInfo { return r.grpc.GetServiceInfo() }

// Serve serves the connections of a listener until Shutdown or Close, and then returns nil. Each listener has its own
// bound of connections.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(edge.BoundListener(l, s.config.MaxConnections, s.log))
}

// Shutdown stops accepting connections and calls, and waits for the calls under way. When ctx ends, it cuts them off.
// From its call on, health is NOT_SERVING.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop.Do(func() { close(s.stopping) })
	done := make(chan struct{})
	go func() { defer close(done); s.grpc.GracefulStop() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
		return ctx.Err()
	}
}

// Close closes the listeners and all connections at once.
func (s *Server) Close() error {
	s.stop.Do(func() { close(s.stopping) })
	s.grpc.Stop()
	s.arriving.stopTimer()
	return nil
}
