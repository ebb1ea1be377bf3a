package envoy_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachetypes "github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// nodeID is the id that the client sends as its node.
const nodeID = "envoy-ratelimit"

// xdsServer is an xDS server that sends the requests of its client to a channel.
type xdsServer struct {
	t        *testing.T
	cache    cache.SnapshotCache
	requests chan *discovery.DiscoveryRequest
	addr     string
	stop     func()
}

func newXDSServer(t *testing.T, addr string) *xdsServer {
	t.Helper()
	c := &xdsServer{
		t: t, cache: cache.NewSnapshotCache(true, cache.IDHash{}, nil),
		requests: make(chan *discovery.DiscoveryRequest, 100),
	}
	c.serve(addr)
	return c
}

func (c *xdsServer) serve(addr string) {
	c.t.Helper()
	l := dbtest.Listen(c.t, addr)
	c.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	g := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, xdsserver.NewServer(ctx, c.cache, xdsserver.CallbackFuncs{
		StreamRequestFunc: func(_ int64, q *discovery.DiscoveryRequest) error {
			c.requests <- q
			return nil
		},
	}))
	go func() { _ = g.Serve(l) }()
	stop := sync.OnceFunc(func() { cancel(); g.Stop() })
	c.stop = stop
	c.t.Cleanup(stop)
}

// serveSnapshot serves a version of the resources.
func (c *xdsServer) serveSnapshot(version string, list ...*rlsconf.RateLimitConfig) {
	c.t.Helper()
	resources := make([]cachetypes.Resource, len(list))
	for i, config := range list {
		resources[i] = config
	}
	s, err := cache.NewSnapshot(version, map[resource.Type][]cachetypes.Resource{
		resource.RateLimitConfigType: resources,
	})
	if err == nil {
		err = c.cache.SetSnapshot(context.Background(), nodeID, s)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// waitFor waits for a request that matches, and discards those before it.
func (c *xdsServer) waitFor(what string, matches func(*discovery.DiscoveryRequest) bool) *discovery.DiscoveryRequest {
	c.t.Helper()
	for {
		if q := await.Receive(c.t, what+" to be heard", c.requests); matches(q) {
			return q
		}
	}
}

// waitConfirmed waits until the client has acknowledged a version.
func (c *xdsServer) waitConfirmed(version string) {
	c.t.Helper()
	c.waitFor("that "+version+" is in force", func(q *discovery.DiscoveryRequest) bool {
		return q.GetVersionInfo() == version && q.GetErrorDetail() == nil && q.GetResponseNonce() != ""
	})
}

// domainConfig returns a domain in which each value of the key k may send n requests an hour.
func domainConfig(domain string, n uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: "config-" + domain, Domain: domain, Descriptors: []*rlsconf.RateLimitDescriptor{{
		Key: "k", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_HOUR, RequestsPerUnit: n},
	}}}
}

func TestXDS(t *testing.T) {
	t.Parallel()
	c := newXDSServer(t, "127.0.0.1:0")
	r := startRig(t, noHeaders)
	sub, err := envoy.Subscribe(envoy.XDS{Addr: c.addr, Node: nodeID, Log: slog.New(slog.DiscardHandler)}, r.server)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { sub.Run(ctx) })
	defer func() { cancel(); running.Wait() }()

	firstRequest := c.waitFor("the first request", func(*discovery.DiscoveryRequest) bool { return true })
	if firstRequest.GetNode().GetId() != nodeID || firstRequest.GetTypeUrl() != envoy.ConfigType ||
		firstRequest.GetVersionInfo() != "" {
		t.Errorf("the first request is %v", firstRequest)
	}
	if _, err := r.trySend("d", 0, desc("k", "x")); status.Code(err) != codes.Unavailable {
		t.Errorf("before a configuration: %v, want Unavailable", err)
	}
	c.serveSnapshot("one", domainConfig("d", 3), domainConfig("e", 1))
	c.waitConfirmed("one")
	if got := r.countPassed(9, "d", desc("k", "x")); got != 3 {
		t.Errorf("%d passed, want 3", got)
	}
	c.serveSnapshot("two", domainConfig("d", 5))
	c.waitConfirmed("two")
	if got := r.countPassed(9, "d", desc("k", "x")); got != 2 {
		t.Errorf("%d more passed after 3 became 5, want 2", got)
	}
	if got := r.countPassed(9, "e", desc("k", "x")); got != 9 {
		t.Errorf("%d passed in a domain that is gone, want all", got)
	}

	invalid := domainConfig("e", 1)
	invalid.Descriptors[0].Key = ""
	c.serveSnapshot("three", domainConfig("d", 7), invalid)
	rejected := c.waitFor("a rejection", func(q *discovery.DiscoveryRequest) bool { return q.GetErrorDetail() != nil })
	if rejected.GetVersionInfo() != "two" || !strings.Contains(rejected.GetErrorDetail().GetMessage(), "config-e: descriptors[0]: key") {
		t.Errorf("the rejection is %v", rejected)
	}
	if got := r.countPassed(9, "d", desc("k", "y")); got != 5 {
		t.Errorf("%d passed after a bad snapshot, want 5", got)
	}
	if sub.Problem() == "" {
		t.Error("a rejected configuration is no problem")
	}

	c.stop()
	if got := r.countPassed(9, "d", desc("k", "z")); got != 5 {
		t.Errorf("%d passed while the xDS server is away, want 5", got)
	}
	c.serve(c.addr)
	reconnected := c.waitFor("the first request after it came back", func(q *discovery.DiscoveryRequest) bool {
		return q.GetResponseNonce() == ""
	})
	if reconnected.GetVersionInfo() != "" { // a cache does not answer a client that has its version
		t.Errorf("a new connection names the version %q, want none", reconnected.GetVersionInfo())
	}
	c.serveSnapshot("four", domainConfig("d", 6))
	c.waitConfirmed("four")
	if got := r.countPassed(9, "d", desc("k", "z")); got != 1 || sub.Problem() != "" {
		t.Errorf("%d more passed after 5 became 6, want 1; problem %q", got, sub.Problem())
	}
}

func TestWrongResources(t *testing.T) {
	t.Parallel()
	unknownUnit := domainConfig("d", 1)
	unknownUnit.Descriptors[0].RateLimit.Unit = 99
	inner := domainConfig("d", 1)
	inner.Descriptors[0].Descriptors = []*rlsconf.RateLimitDescriptor{{Key: "a", RateLimit: &rlsconf.RateLimitPolicy{}}}
	for want, list := range map[string][]*rlsconf.RateLimitConfig{
		`config-d: domain: "d" is defined twice`:                     {domainConfig("d", 1), domainConfig("d", 2)},
		"config-: domain: is missing":                                {domainConfig("", 1)},
		"descriptors[0].rate_limit.unit: 99":                         {unknownUnit},
		"descriptors[0].descriptors[0].rate_limit: unit: is missing": {inner},
	} {
		if _, err := envoy.FromXDS(list, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := envoy.Subscribe(envoy.XDS{Addr: "http://x:1"}, nil); err == nil {
		t.Error("a URL was taken for an address")
	}
}

// TestQuotaModeByXDS checks the field quota_mode, which the generated type does not have.
func TestQuotaModeByXDS(t *testing.T) {
	t.Parallel()
	quota, other := domainConfig("d", 1), domainConfig("d", 3).GetDescriptors()[0]
	other.Key = "other"
	other.RateLimit.Unit = 5 // a month
	quota.Descriptors = append(quota.Descriptors, other)
	for _, d := range quota.GetDescriptors() { // 7 is the number of quota_mode
		d.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 1))
	}
	c, err := envoy.FromXDS([]*rlsconf.RateLimitConfig{quota}, false)
	if err != nil {
		t.Fatal(err)
	}
	r := startRig(t, noHeaders)
	r.server.Use(c)
	if got := r.countPassed(9, "d", desc("k", "x"), desc("other", "x")); got != 3 {
		t.Errorf("%d passed, want 3, until both quotas are used up", got)
	}
	s := r.send("d", 0, desc("other", "x")).GetStatuses()[0]
	if got := s.GetCurrentLimit().GetUnit(); got != rls.RateLimitResponse_RateLimit_MONTH {
		t.Errorf("unit %v, want MONTH", got)
	}
}
