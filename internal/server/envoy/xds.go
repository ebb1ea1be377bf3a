package envoy

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/strict"
)

// ConfigType is the type URL of the resources.
const ConfigType = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Pauses between attempts to reach an xDS server: the first, and the longest. Each is twice the last one,
// less up to a half, so that servers do not reconnect at the same time.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// maxSnapshot is how many bytes a configuration may have.
const maxSnapshot = 64 << 20

// XDS is the configuration of a [Subscription].
type XDS struct {
	Addr string // host:port of a server of aggregated discovery
	Node string // id of this process
	// TLS returns the configuration of the next connection, so that certificates may change. Nil: plain connections.
	TLS func() (*tls.Config, error)
	Log *slog.Logger
	// MergeDomains lets several resources have the same domain; see [Parse].
	MergeDomains bool
}

// Subscription updates a server with the configurations of an xDS server, in the state-of-the-world variant. Create one
// with [Subscribe]. It is safe for concurrent use.
type Subscription struct {
	xds     XDS
	server  *Server
	version string // in force
	problem atomic.Pointer[string]
}

// Subscribe returns a subscription, which connects only in Run. Errors are headgate.ErrInvalid.
func Subscribe(x XDS, s *Server) (*Subscription, error) {
	if x.Addr == "" || strings.Contains(x.Addr, "://") {
		return nil, headgate.Invalid("xds", "%q is not an address such as envoy-gateway:18001", x.Addr)
	}
	return &Subscription{xds: x, server: s}, nil
}

// Problem returns what is wrong with the connection or the latest configuration; empty: nothing.
func (s *Subscription) Problem() string {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// setProblem sets the problem, and logs it if it is a new one.
func (s *Subscription) setProblem(err error, message string) {
	text := err.Error()
	if s.Problem() != text {
		s.xds.Log.Error(message, "xds", s.xds.Addr, "error", err)
	}
	s.problem.Store(&text)
}

// Run receives configurations until ctx is done, and puts each into force as a whole. It rejects a wrong configuration
// with the reason. While the latest one is wrong or the server is away, the previous one stays in force.
func (s *Subscription) Run(ctx context.Context) {
	for pause := firstPause; ctx.Err() == nil; {
		answered, err := s.runStream(ctx)
		if ctx.Err() != nil {
			return
		}
		if answered {
			pause = firstPause
		}
		s.setProblem(fmt.Errorf("xds: %w", err), "the xDS server is away; the limits stay what they were")
		select {
		case <-ctx.Done():
		case <-time.After(pause - rand.N(pause/2)):
		}
		pause = min(2*pause, longestPause)
	}
}

// runStream receives configurations over one connection until it ends. answered reports whether the server sent any.
func (s *Subscription) runStream(ctx context.Context) (answered bool, err error) {
	secure := insecure.NewCredentials()
	if s.xds.TLS != nil {
		c, err := s.xds.TLS()
		if err != nil {
			return false, err
		}
		secure = credentials.NewTLS(c)
	}
	conn, err := grpc.NewClient(s.xds.Addr, grpc.WithTransportCredentials(secure),
		// By default, gRPC servers close a connection that pings more often than every five minutes.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 6 * time.Minute, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxSnapshot)))
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost with it
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		return false, err
	}
	request := &discovery.DiscoveryRequest{
		Node: &corepb.Node{Id: s.xds.Node, UserAgentName: "headgate"}, TypeUrl: ConfigType,
	}
	for {
		if err := stream.Send(request); err != nil {
			_, cause := stream.Recv() // has the reason
			return answered, cause
		}
		got, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		request = s.apply(got)
	}
}

// apply puts a configuration into force unless it is wrong, and returns the request that confirms or rejects it.
func (s *Subscription) apply(got *discovery.DiscoveryResponse) *discovery.DiscoveryRequest {
	c, err := parseResponse(got, s.xds.MergeDomains)
	next := &discovery.DiscoveryRequest{
		TypeUrl: ConfigType, ResponseNonce: got.GetNonce(), VersionInfo: s.version,
	}
	if err != nil {
		next.ErrorDetail = &rpcstatus.Status{Code: int32(codes.InvalidArgument), Message: err.Error()}
		s.setProblem(fmt.Errorf("xds: version %.100q: %w", got.GetVersionInfo(), err),
			"a configuration was rejected; the limits stay what they were")
		return next
	}
	s.server.Use(c)
	s.version, next.VersionInfo = got.GetVersionInfo(), got.GetVersionInfo()
	s.problem.Store(nil)
	s.xds.Log.Info("a configuration for Envoy was received", "xds", s.xds.Addr, "version", s.version,
		"domains", c.Domains(), "limits", c.Limits())
	return next
}

// parseResponse makes a configuration of all resources of a response.
func parseResponse(got *discovery.DiscoveryResponse, merge bool) (*Config, error) {
	if t := got.GetTypeUrl(); t != "" && t != ConfigType {
		return nil, headgate.Invalid("type_url", "%.200q is not %s", t, ConfigType)
	}
	list := make([]*rlsconf.RateLimitConfig, len(got.GetResources()))
	for i, resource := range got.GetResources() {
		list[i] = &rlsconf.RateLimitConfig{}
		if resource.GetTypeUrl() != ConfigType {
			return nil, headgate.Invalid(fmt.Sprintf("resources[%d]", i), "is of the type %.200q and not %s",
				resource.GetTypeUrl(), ConfigType)
		}
		if err := resource.UnmarshalTo(list[i]); err != nil {
			return nil, headgate.Invalid(fmt.Sprintf("resources[%d]", i), "cannot be read: %v", err)
		}
	}
	return FromXDS(list, merge)
}

// FromXDS makes a configuration of resources. A domain may be in only one resource, unless merge is true; see [Parse].
// Errors are headgate.ErrInvalid and name the resource and the path.
func FromXDS(list []*rlsconf.RateLimitConfig, merge bool) (*Config, error) {
	docs := make([]document, len(list))
	for i, resource := range list {
		at := strict.Place{File: cmp.Or(resource.GetName(), fmt.Sprintf("resources[%d]", i))}
		docs[i] = document{at: at, domain: resource.GetDomain()}
		var err error
		if docs[i].descriptors, err = descriptorsFromXDS(resource.GetDescriptors(), at, 1); err != nil {
			return nil, err
		}
	}
	return compile(docs, merge)
}

// descriptorsFromXDS converts descriptors of a resource, with those nested in them.
func descriptorsFromXDS(list []*rlsconf.RateLimitDescriptor, at strict.Place, depth int) ([]descriptor, error) {
	if depth > maxDepth {
		return nil, at.Wrong("descriptors are nested more than %d deep", maxDepth)
	}
	out := make([]descriptor, len(list))
	for i, source := range list {
		at := at.In(fmt.Sprintf("descriptors[%d]", i))
		d := descriptor{
			at: at, key: source.GetKey(), value: source.GetValue(),
			shadow: source.GetShadowMode(), quota: quotaMode(source),
		}
		if l := source.GetRateLimit(); l != nil {
			at := at.In("rate_limit")
			d.limit = &policy{
				at: at, unit: unitNames[int32(l.GetUnit())], requests: l.GetRequestsPerUnit(),
				unlimited: l.GetUnlimited(), name: l.GetName(),
			}
			if d.limit.unit == "" && l.GetUnit() != 0 {
				return nil, at.In("unit").Wrong("%d is not a unit of time", l.GetUnit())
			}
			for _, r := range l.GetReplaces() {
				d.limit.replaces = append(d.limit.replaces, r.GetName())
			}
		}
		var err error
		if d.children, err = descriptorsFromXDS(source.GetDescriptors(), at, depth+1); err != nil {
			return nil, err
		}
		out[i] = d
	}
	return out, nil
}

// quotaField is the number of quota_mode in RateLimitDescriptor, which the generated type does not know yet.
const quotaField = 7

// quotaMode reads the field quota_mode from the unknown fields of a message.
func quotaMode(d *rlsconf.RateLimitDescriptor) (on bool) {
	unknown := d.ProtoReflect().GetUnknown()
	for len(unknown) > 0 {
		number, kind, n := protowire.ConsumeTag(unknown)
		if n < 0 {
			return on
		}
		unknown = unknown[n:]
		if number == quotaField && kind == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(unknown)
			on = v != 0
		}
		if n = protowire.ConsumeFieldValue(number, kind, unknown); n < 0 {
			return on
		}
		unknown = unknown[n:]
	}
	return on
}
