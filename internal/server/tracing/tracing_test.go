package tracing_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/propagation"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/tracing"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// remoteStore hides that a store is in this process, so that front.New wraps it like the store of a server. If release
// is not nil, a call sends to called and waits for release. If err is not nil, a call fails with it.
type remoteStore struct {
	store.Store
	called, release chan struct{}
	err             error
}

func (s *remoteStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if s.release != nil {
		s.called <- struct{}{}
		<-s.release
	}
	if s.err != nil {
		return s.err
	}
	return s.Store.Apply(ctx, ops, outs)
}

// rig is a server with traces.
type rig struct {
	*tracing.Tracing
	spans   *tracetest.InMemoryExporter
	remote  *remoteStore
	front   *front.Store
	limiter *headgate.Limiter
	service *service.Service
	handler http.Handler
}

func newRig(t testing.TB, options ...sdk.TracerProviderOption) *rig {
	t.Helper()
	r := &rig{spans: tracetest.NewInMemoryExporter(), remote: &remoteStore{Store: memory.New(nil)}}
	p := sdk.NewTracerProvider(append(options, sdk.WithSyncer(r.spans))...)
	r.Tracing = tracing.New(p, propagation.TraceContext{})
	s := front.New(r.Store(r.remote, "postgres"), &front.Config{
		Logger: slog.New(slog.DiscardHandler), SweepEvery: -1,
		Coalesce: &front.CoalesceConfig{Context: r.Batch, Flights: 1},
		Guard:    &front.GuardConfig{Deadline: time.Minute},
	})
	t.Cleanup(func() { s.Close() })
	r.front = s
	r.limiter = headgate.New(s, &headgate.Config{Observer: service.Observers{r}, Timeout: time.Minute})
	r.service = service.New(r.limiter, &config.Config{}, nil)
	r.handler = r.Handler(rest.New(r.service, slog.New(slog.DiscardHandler), nil))
	return r
}

const (
	traceID         = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampledParent   = "00-" + traceID + "-00f067aa0ba902b7-01"
	unsampledParent = "00-" + traceID + "-00f067aa0ba902b7-00"
)

// send sends a request, with a traceparent unless parent is empty, and returns the status.
func (r *rig) send(path, parent, body string) int {
	q := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	if parent != "" {
		q.Header.Set("traceparent", parent)
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, q)
	return w.Code
}

// tree returns the spans as "name < parent", with the values of some attributes, sorted.
func (r *rig) tree() (lines []string) {
	spans := r.spans.GetSpans()
	names := map[string]string{}
	for i := range spans {
		names[spans[i].SpanContext.SpanID().String()] = spans[i].Name
	}
	for i := range spans {
		s := &spans[i]
		text := s.Name + " < " + names[s.Parent.SpanID().String()]
		for _, a := range s.Attributes {
			switch a.Key {
			case "headgate.outcome", "headgate.way", "http.response.status_code", "headgate.batch.ops", "error.type",
				"rpc.grpc.status_code":
				text += " " + a.Value.String()
			}
		}
		lines = append(lines, text)
	}
	slices.Sort(lines)
	return lines
}

// expectSpans fails the test unless tree returns the lines, or if a span has the key mallory.
func (r *rig) expectSpans(t *testing.T, want ...string) {
	t.Helper()
	if got := r.tree(); !slices.Equal(got, want) {
		t.Errorf("spans\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, s := range r.spans.GetSpans() {
		if text := fmt.Sprintf("%+v", s); strings.Contains(text, "mallory") {
			t.Errorf("a span has a key: %s", text)
		}
	}
}

// TestARequestHasSpansDownToTheStore checks an admission, a refusal by package deny without the store, and an error.
func TestARequestHasSpansDownToTheStore(t *testing.T) { synctest.Test(t, testSpansDownToTheStore) }

func testSpansDownToTheStore(t *testing.T) {
	r := newRig(t)
	for range 2 {
		r.send("/v1/take", sampledParent, `{"limit":"fixed-window 1/30d","key":"mallory"}`)
	}
	r.send("/v1/take", sampledParent, `{"limit":"fixed-window 1/30d","key":"mallory","cost":-1}`)
	r.expectSpans(t,
		"POST /v1/take <  200", "POST /v1/take <  200", "POST /v1/take <  400",
		"apply postgres < POST /v1/take 1",
		"decide < POST /v1/take admitted store", "decide < POST /v1/take refused local",
	)
	for _, s := range r.spans.GetSpans() {
		if s.SpanContext.TraceID().String() != traceID || s.Parent.SpanID().String() == "0000000000000000" {
			t.Errorf("%s is not of the trace of the request: %v, %v", s.Name, s.SpanContext, s.Parent)
		}
		if s.EndTime.Before(s.StartTime) {
			t.Errorf("%s ends before it starts", s.Name)
		}
	}
}

func TestAFailureOfTheStoreIsReported(t *testing.T) {
	r := newRig(t)
	r.remote.err = fmt.Errorf("mallory: %w", store.ErrUnavailable)
	if code := r.send("/v1/take", "", `{"limit":"fixed-window 1/30d","key":"mallory"}`); code != http.StatusServiceUnavailable {
		t.Errorf("got status %d, want 503", code)
	}
	got := strings.Join(r.tree(), "\n")
	for _, want := range []string{
		"POST /v1/take <  503", "apply postgres < POST /v1/take 1 store unavailable", "decide < POST /v1/take failed store unavailable",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, s := range r.spans.GetSpans() {
		if s.Status.Code.String() != "Error" || strings.Contains(fmt.Sprintf("%+v", s), "mallory") {
			t.Errorf("%s: got %+v, want an error without the key", s.Name, s)
		}
	}
}

func TestUnsampledRequestsHaveNoSpans(t *testing.T) {
	r := newRig(t, sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	r.send("/v1/take", unsampledParent, `{"limit":"fixed-window 1/30d","key":"k"}`)
	r.send("/livez", sampledParent, ``)
	if _, err := r.limiter.Allow(t.Context(), headgate.MustParse("fixed-window 1/30d"), "other"); err != nil {
		t.Fatal(err)
	}
	r.expectSpans(t)
}

// TestABatchIsLinkedToItsCallers checks that the span of a batch of three callers has one as its parent, and two links.
func TestABatchIsLinkedToItsCallers(t *testing.T) {
	r := newRig(t)
	r.remote.called, r.remote.release = make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	take := func(key string) {
		wg.Go(func() { r.send("/v1/take", "", `{"limit":"fixed-window 1/30d","key":"`+key+`"}`) })
	}
	take("first")
	<-r.remote.called
	for i := range 3 {
		take(fmt.Sprint("key", i))
	}
	await.Until(t, "three calls to wait", func() bool { return r.front.Stats().Waiting == 3 })
	close(r.remote.release)
	<-r.remote.called
	wg.Wait()
	for _, s := range r.spans.GetSpans() {
		if s.Name == "apply postgres" && len(s.Links) == 2 && s.Parent.IsValid() {
			return
		}
	}
	t.Errorf("got the spans %v, want a batch with two links", r.tree())
}

func TestCallsOfGRPCHaveSpans(t *testing.T) {
	r := newRig(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.New(r.service, slog.New(slog.DiscardHandler), &rpc.Config{
		Unary: []grpc.UnaryServerInterceptor{r.Unary}, Stream: []grpc.StreamServerInterceptor{r.Stream},
	})
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	defer func() { _ = server.Close(); <-served }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", sampledParent)
	charge := func(limit string) *pb.Request {
		return &pb.Request{Charges: []*pb.Charge{{Limit: limit, Key: new("mallory")}}}
	}
	c := pb.NewHeadgateServiceClient(conn)
	if _, err := c.Take(ctx, charge("fixed-window 1/30d")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Take(ctx, charge("nonsense")); err == nil {
		t.Fatal("no error")
	}
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	r.expectSpans(t,
		"apply postgres < headgate.v1.HeadgateService/Take 1",
		"decide < headgate.v1.HeadgateService/Take admitted store",
		"decide < headgate.v1.HeadgateService/Take failed invalid request",
		"headgate.v1.HeadgateService/Take <  0", "headgate.v1.HeadgateService/Take <  3",
	)
	for _, s := range r.spans.GetSpans() {
		if s.SpanContext.TraceID().String() != traceID {
			t.Errorf("%s is not of the trace of the call", s.Name)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	for _, c := range []struct{ name, parent string }{{"not sampled", unsampledParent}, {"sampled", sampledParent}} {
		b.Run(c.name, func(b *testing.B) {
			r := newRig(b)
			b.ReportAllocs()
			for b.Loop() {
				r.send("/v1/take", c.parent, `{"limit":"fixed-window 1000000000/30d","key":"k"}`)
				r.spans.Reset()
			}
		})
	}
	b.Run("off", func(b *testing.B) {
		r := newRig(b)
		s := front.New(r.remote, &front.Config{Logger: slog.New(slog.DiscardHandler), SweepEvery: -1})
		b.Cleanup(func() { s.Close() })
		plain := service.New(headgate.New(s, nil), &config.Config{}, nil)
		r.handler = rest.New(plain, slog.New(slog.DiscardHandler), nil)
		b.ReportAllocs()
		for b.Loop() {
			r.send("/v1/take", sampledParent, `{"limit":"fixed-window 1000000000/30d","key":"k"}`)
		}
	})
}
