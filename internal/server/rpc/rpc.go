// Package rpc serves gRPC: it listens, knows callers by what they show, bounds what requests take, reports
// health, and stops in order. The services that it serves are registered: that of headgate itself, and
// others, such as Envoy's.
//
// A caller is known before its message is read: its call is refused by its headers alone. Web pages have
// no part in that: a browser sends no request with the content type of gRPC to another origin
// without a preflight, which is refused here.
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

// maxStreams is how many calls of one connection may be under way. Clients wait for one to end.
const maxStreams = 250

// Config adjusts a Server. A nil Config, and every zero field, is fine.
type Config struct {
	// Tokens are what callers show to be let in, unless they come by a Unix socket or show a certificate
	// that is listed there. Nil: everybody may do everything.
	Tokens *auth.File
	// TLS encrypts the connections, and may verify certificates of clients. Nil: they are plain.
	TLS *tls.Config
	// Load bounds what requests take. Nil: one of its own, as load.New(0, 0) returns it.
	Load *load.Load
	// MaxConnections is how many connections may be open: see [edge.Bound]. Zero: what it says.
	MaxConnections int
	// NoAdmin refuses admin actions, which another address serves.
	NoAdmin bool
	// Unary and Stream come before what serves calls and streams.
	Unary  []grpc.UnaryServerInterceptor
	Stream []grpc.StreamServerInterceptor
}

// Service is a service that a Server serves.
type Service struct {
	Desc *grpc.ServiceDesc
	Impl any
	// Role is what a caller needs to call a method, which is named without its service. Nil:
	// [auth.RoleTake] for all.
	Role func(method string) auth.Role
	// Objects is how many charges a message carries, or objects that take as much memory. Nil: one.
	Objects func(message any) int
}

// method is the access and the size of a method, by its full name.
type method struct {
	unary   bool
	role    auth.Role
	objects func(any) int
}

// Server serves gRPC. Create one with [New], register services, and then serve one listener or
// several. It is safe for concurrent use once services are registered.
type Server struct {
	service  *service.Service
	log      *slog.Logger
	config   Config
	methods  map[string]method // by the full name
	services map[string]bool   // whose health is reported
	grpc     *grpc.Server
	arriving arriving
	stopping chan struct{} // closed when the server begins to stop
	stop     sync.Once
}

// New returns a server of headgate's own service, health and reflection. What goes wrong is logged, a line for each
// request that fails: see package lograte for a log that stands that.
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
		grpc.Creds(secure),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.InTapHandle(out.enter),
		grpc.ChainUnaryInterceptor(append(slices.Clone(out.config.Unary), out.unary)...),
		grpc.ChainStreamInterceptor(append(slices.Clone(out.config.Stream), out.stream)...),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(16<<10),
		grpc.ConnectionTimeout(10*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 2 * time.Minute, Time: time.Minute, Timeout: 20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 10 * time.Second, PermitWithoutStream: true,
		}),
	)
	healthpb.RegisterHealthServer(registrar{out}, &health{of: out})
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

// registrar registers what anyone may call.
type registrar struct{ *Server }

// RegisterService implements grpc.ServiceRegistrar.
func (r registrar) RegisterService(desc *grpc.ServiceDesc, impl any) {
	r.Register(Service{Desc: desc, Impl: impl, Role: func(string) auth.Role { return auth.Anyone }})
}

// GetServiceInfo implements reflection.ServiceInfoProvider.
func (r registrar) GetServiceInfo() map[string]grpc.ServiceInfo { return r.grpc.GetServiceInfo() }

// Serve answers what comes to a listener, until Shutdown. It returns nil then. Of several listeners each
// has its own bound of connections.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(edge.Bound(l, s.config.MaxConnections, s.log))
}

// Shutdown stops accepting connections and calls, and waits for those under way, until ctx ends. Health
// is not serving from now on.
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
	s.arriving.close()
	return nil
}
