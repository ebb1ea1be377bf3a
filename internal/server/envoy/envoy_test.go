package envoy_test

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	descriptorpb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

var noHeaders = envoy.Headers{}

// rig is a server with a client. The test advances the clock of the store.
type rig struct {
	t      testing.TB
	clock  *atomic.Int64 // microseconds
	server *envoy.Server
	client rls.RateLimitServiceClient
}

// startRig returns a rig over a memory store. Its clock begins at the start of a day.
func startRig(t testing.TB, headers envoy.Headers, files ...string) *rig {
	t.Helper()
	clock := &atomic.Int64{}
	clock.Store(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC).UnixMicro())
	s := memory.New(&memory.Config{Clock: clock.Load})
	t.Cleanup(func() { s.Close() })
	r := startRigWithStore(t, s, headers, files...)
	r.clock = clock
	return r
}

// startRigWithStore returns a rig over a store, whose clock the rig does not know.
func startRigWithStore(t testing.TB, s store.Store, headers envoy.Headers, files ...string) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	server := envoy.New(service.New(headgate.New(s, nil), &config.Config{}, nil), log, headers)
	if len(files) > 0 {
		server.Use(parse(t, files...))
	}
	l := bufconn.Listen(1 << 20)
	g := grpc.NewServer()
	g.RegisterService(&rls.RateLimitService_ServiceDesc, server)
	go func() { _ = g.Serve(l) }()
	t.Cleanup(g.Stop)
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &rig{t: t, server: server, client: rls.NewRateLimitServiceClient(conn)}
}

func parse(t testing.TB, texts ...string) *envoy.Config {
	t.Helper()
	files := make([]envoy.File, len(texts))
	for i, text := range texts {
		files[i] = envoy.File{Name: string(rune('a'+i)) + ".yaml", Text: []byte(text)}
	}
	c, err := envoy.Parse(false, files...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// advance advances the clock.
func (r *rig) advance(d time.Duration) { r.clock.Add(d.Microseconds()) }

// desc returns a descriptor of alternating keys and values.
func desc(pairs ...string) *descriptorpb.RateLimitDescriptor {
	d := &descriptorpb.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &descriptorpb.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// send sends a request, and fails the test on an error.
func (r *rig) send(domain string, hits uint32, list ...*descriptorpb.RateLimitDescriptor) *rls.RateLimitResponse {
	r.t.Helper()
	answer, err := r.trySend(domain, hits, list...)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

// trySend sends a request, and returns its error.
func (r *rig) trySend(domain string, hits uint32, list ...*descriptorpb.RateLimitDescriptor) (
	*rls.RateLimitResponse, error,
) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return r.client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: list})
}

// countPassed sends n requests and returns how many pass.
func (r *rig) countPassed(n int, domain string, list ...*descriptorpb.RateLimitDescriptor) (passed int) {
	r.t.Helper()
	for range n {
		if r.send(domain, 0, list...).GetOverallCode() == rls.RateLimitResponse_OK {
			passed++
		}
	}
	return passed
}
