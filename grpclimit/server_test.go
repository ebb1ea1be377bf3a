package grpclimit_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// TestFieldsAndDetailsOfARefusal checks the fields of admissions, and the fields, status and details of refusals.
func TestFieldsAndDetailsOfARefusal(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	l := headgate.New(memory.New(&memory.Config{Clock: day.UnixMicro}), nil)
	callLimit, allLimit := namedLimit("calls", "token-bucket 1/4s burst 2"), namedLimit("all", "fixed-window 100/1h from-first")
	server := mustServer(t, l, grpclimit.ServerConfig{Charges: charges(
		grpclimit.Charge{Limit: callLimit, Key: grpclimit.ByMetadata("Api-Key")},
		grpclimit.Charge{Limit: allLimit, Key: grpclimit.ByConst("")},
	)})
	srv := (&testServer{}).start(t, withInterceptors(server))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", "hidden")
	for i, want := range []string{`"calls";r=1;t=4, "all";r=99;t=3600`, `"calls";r=0;t=4, "all";r=98;t=3600`} {
		header, trailer, err := srv.call(ctx)
		if err != nil || !slices.Equal(header["ratelimit"], []string{want}) || header["retry-after"] != nil ||
			!slices.Equal(header["ratelimit-policy"], []string{`"calls";q=2;w=8, "all";q=100;w=3600`}) ||
			trailer["ratelimit"] != nil {
			t.Errorf("call %d: got %v, %v, %v", i, header, trailer, err)
		}
	}
	for _, call := range []func() (metadata.MD, error){
		func() (metadata.MD, error) { _, trailer, err := srv.call(ctx); return trailer, err },
		func() (metadata.MD, error) { _, trailer, err := srv.stream(ctx, 1); return trailer, err },
	} {
		trailer, err := call()
		st, ok := status.FromError(err)
		const text = "Quota exceeded: limit calls refuses the call, which has charged nothing. It can pass in 4 s."
		if !ok || st.Code() != codes.ResourceExhausted || st.Message() != text {
			t.Errorf("got %v, want %s", err, text)
		}
		quota, retry, _ := details(err)
		if len(quota.GetViolations()) != 1 || quota.Violations[0].Subject != "calls" ||
			quota.Violations[0].Description != "0 of 2 units remain." {
			t.Errorf("got violations %v, want one of calls", quota)
		}
		if retry.GetRetryDelay().AsDuration() != 4*time.Second {
			t.Errorf("got RetryInfo %v, want 4 s", retry)
		}
		if !slices.Equal(trailer["retry-after"], []string{"4"}) ||
			!slices.Equal(trailer["grpc-retry-pushback-ms"], []string{"4000"}) ||
			!slices.Equal(trailer["ratelimit"], []string{`"calls";r=0;t=4, "all";r=98;t=3600`}) {
			t.Errorf("got trailer %v, want 4 s", trailer)
		}
		if strings.Contains(st.String(), "hidden") {
			t.Errorf("the status has the key: %v", st)
		}
	}
	if n := usedUnits(t, l, allLimit, ""); n != "2" {
		t.Errorf("got %s units charged after refusals, want 2", n)
	}
}

func TestACostAboveTheCapacityHasNoRetryInfo(t *testing.T) {
	t.Parallel()
	srv := startServer(t, memoryLimiter(), grpclimit.ServerConfig{Charges: charges(grpclimit.Charge{
		Limit: headgate.MustParse("token-bucket 5/s"), Key: grpclimit.ByPeer,
		Cost: func(*grpclimit.Call) (headgate.Cost, error) { return headgate.Units(6), nil },
	})})
	_, trailer, err := srv.call(t.Context())
	quota, retry, _ := details(err)
	expectCode(t, "a cost of 6", err, codes.ResourceExhausted)
	if quota == nil || retry != nil || trailer["retry-after"] != nil ||
		!slices.Equal(trailer["grpc-retry-pushback-ms"], []string{"-1"}) || !strings.Contains(err.Error(), "never") {
		t.Errorf("got %v, %v, %v; want no retry", quota, retry, trailer)
	}
}

// TestPerMessageChargesEachMessage checks the charges of messages and of the start of a stream, and a refused message.
func TestPerMessageChargesEachMessage(t *testing.T) {
	t.Parallel()
	messages := namedLimit("messages", "fixed-window 3/1h from-first")
	starts := namedLimit("starts", "fixed-window 9/1h from-first")
	for name, srv := range map[string]*testServer{
		"the handler returns the error": {},
		"the handler hides the error":   {hideErr: true},
		"the handler has another error": {hideErr: true, err: status.Error(codes.Aborted, "")},
	} {
		l := memoryLimiter()
		srv.start(t, withInterceptors(mustServer(t, l, grpclimit.ServerConfig{Charges: charges(
			grpclimit.Charge{Limit: messages, Key: grpclimit.ByPeer, PerMessage: true},
			grpclimit.Charge{Limit: starts, Key: grpclimit.ByPeer},
		)})))
		answers, trailer, err := srv.stream(t.Context(), 9)
		if answers != 3 || srv.messages.Load() != 3 {
			t.Errorf("%s: %d messages answered, %d reached the handler, want 3", name, answers, srv.messages.Load())
		}
		if len(trailer["retry-after"]) != 1 || !strings.Contains(trailer["ratelimit"][0], `"messages";r=0`) {
			t.Errorf("%s: got trailer %v, want the refusal of messages", name, trailer)
		}
		if srv.err != nil {
			expectCode(t, name, err, codes.Aborted)
		} else if _, retry, _ := details(err); status.Code(err) != codes.ResourceExhausted || retry == nil ||
			!strings.Contains(err.Error(), "limit messages refuses the message,") {
			t.Errorf("%s: got %v, want a refusal by messages", name, err)
		}
		if m, s := usedUnits(t, l, messages, "192.0.2.1"), usedUnits(t, l, starts, "192.0.2.1"); m != "3" || s != "1" {
			t.Errorf("%s: got %s messages and %s starts charged, want 3 and 1", name, m, s)
		}
	}
}

// TestCostOfAMessage checks that Cost is called for each message, also of a unary call, and that a cost of 0 passes.
func TestCostOfAMessage(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 10/1h from-first")
	var messages atomic.Int64
	srv := startServer(t, l, grpclimit.ServerConfig{Charges: charges(grpclimit.Charge{
		Limit: limit, Key: grpclimit.ByMethod, PerMessage: true,
		Cost: func(c *grpclimit.Call) (headgate.Cost, error) {
			if c.Message == nil {
				t.Error("a cost without a message")
			}
			return headgate.Units(messages.Add(1) - 1), nil // 0, 1, 2, ...
		},
	})})
	if n, _, err := srv.stream(t.Context(), 4); n != 4 || err != nil {
		t.Errorf("got %d answers, %v; want 4", n, err)
	}
	if n := usedUnits(t, l, limit, duplex); n != "6" {
		t.Errorf("got %s units charged, want 0+1+2+3", n)
	}
	_, _, err := srv.call(t.Context())
	expectCode(t, "a unary call", err, codes.OK)
	if n := usedUnits(t, l, limit, unary); n != "4" {
		t.Errorf("got %s units charged for a unary call, want 4", n)
	}
}

// TestLimitsOfMethods checks which calls the limits of a method, of a service and of a tier charge, all or none.
func TestLimitsOfMethods(t *testing.T) {
	t.Parallel()
	l := memoryLimiter()
	method := namedLimit("one", "fixed-window 2/1h from-first")
	wholeService := namedLimit("whole", "fixed-window 4/1h from-first")
	gold := namedLimit("gold", "fixed-window 9/1h from-first")
	srv := startServer(t, l, grpclimit.ServerConfig{
		Skip: func(c *grpclimit.Call) bool { return c.Metadata.Get("skip") != nil },
		Charges: charges(
			grpclimit.Charge{Limit: method, Key: grpclimit.ByMethod, Methods: []string{unary}},
			grpclimit.Charge{Limit: wholeService, Key: grpclimit.ByConst("all"), Methods: []string{"/other.Service/", service}},
			grpclimit.Charge{
				Limit: namedLimit("none", "fixed-window 1/1h from-first"), Key: grpclimit.ByConst("all"),
				Methods: []string{service + "Unary", service + "FullDuplexCall2", "/grpc.testing.Test/"},
			},
			grpclimit.Charge{Key: grpclimit.ByConst("all"), LimitFor: func(c *grpclimit.Call) (headgate.Limit, error) {
				if c.Metadata.Get("tier") == nil {
					return headgate.Limit{}, nil
				}
				return gold, nil
			}},
		),
	})
	skip := metadata.AppendToOutgoingContext(t.Context(), "skip", "1")
	tier := metadata.AppendToOutgoingContext(t.Context(), "tier", "gold")
	for i, step := range []struct {
		ctx    context.Context
		stream bool
		want   codes.Code
	}{
		{t.Context(), false, codes.OK},
		{tier, false, codes.OK},
		{tier, false, codes.ResourceExhausted}, // by limit one; whole and gold are charged nothing
		{skip, false, codes.OK},
		{skip, true, codes.OK},
		{t.Context(), true, codes.OK},
		{tier, true, codes.OK},
		{tier, true, codes.ResourceExhausted}, // by limit whole
	} {
		var err error
		if step.stream {
			_, _, err = srv.stream(step.ctx, 1)
		} else {
			_, _, err = srv.call(step.ctx)
		}
		if status.Code(err) != step.want {
			t.Errorf("call %d: got %v, want %s", i, err, step.want)
		}
	}
	for limit, want := range map[headgate.Limit]string{method: "2", wholeService: "4", gold: "2"} {
		key := "all"
		if limit == method {
			key = unary
		}
		if n := usedUnits(t, l, limit, key); n != want {
			t.Errorf("%s: got %s units charged, want %s", limit.Name(), n, want)
		}
	}
}

// TestHealthIsChargedOnlyByName checks that health checks are charged only by name, and that reflection is not charged.
func TestHealthIsChargedOnlyByName(t *testing.T) {
	t.Parallel()
	const healthService = "/grpc.health.v1.Health/"
	for name, methods := range map[string][]string{"": nil, "by name": {healthService}} {
		l, limit := memoryLimiter(), headgate.MustParse("fixed-window 1/1h from-first")
		server := mustServer(t, l, grpclimit.ServerConfig{
			Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByMethod, Methods: methods}),
		})
		want := "0"
		if methods != nil {
			want = "1"
		}
		for range 2 {
			_, err := server.Unary(t.Context(), &grpc_health_v1.HealthCheckRequest{}, &grpc.UnaryServerInfo{
				FullMethod: healthService + "Check",
			}, func(ctx context.Context, req any) (any, error) {
				return health.NewServer().Check(ctx, req.(*grpc_health_v1.HealthCheckRequest))
			})
			if methods == nil {
				expectCode(t, name, err, codes.OK)
			}
		}
		if n := usedUnits(t, l, limit, healthService+"Check"); n != want {
			t.Errorf("%s: got %s units charged, want %s", name, n, want)
		}
		for _, version := range []string{"v1", "v1alpha"} {
			reflection := "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo"
			_, err := server.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: reflection}, noHandler)
			expectCode(t, version, err, codes.OK)
			if n := usedUnits(t, l, limit, reflection); n != "0" {
				t.Errorf("reflection %s: got %s units charged, want 0", version, n)
			}
		}
	}
}

// noHandler is a handler that answers nothing.
func noHandler(context.Context, any) (any, error) { return nil, nil }

func TestShadowAndAdviseServeEveryCall(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 2/1h from-first")
	for name, tt := range map[string]struct {
		mode     httplimit.Mode
		charged  int64  // before the five calls
		refusals int64  // of five
		want     string // charged after them
		fields   bool
	}{
		"shadow":              {httplimit.Shadow, 0, 3, "2", false},
		"advise":              {httplimit.Advise, 0, 0, "0", true},
		"advise, almost full": {httplimit.Advise, 1, 0, "1", true},
		"advise, full":        {httplimit.Advise, 2, 5, "2", true},
	} {
		l := memoryLimiter()
		for range tt.charged {
			if _, err := l.Allow(t.Context(), limit, "192.0.2.1"); err != nil {
				t.Fatal(err)
			}
		}
		var refusals atomic.Int64
		srv := startServer(t, l, grpclimit.ServerConfig{
			Mode: tt.mode, Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByPeer}),
			OnDecision: func(c *grpclimit.Call, d *headgate.Decision) {
				if !d.Allowed && c.Method == unary {
					refusals.Add(1)
				}
			},
		})
		for range 5 {
			header, trailer, err := srv.call(t.Context())
			if err != nil || (len(header["ratelimit"]) == 1) != tt.fields || header["retry-after"] != nil ||
				trailer["retry-after"] != nil {
				t.Errorf("%s: got %v, %v, %v", name, header, trailer, err)
			}
		}
		if n := usedUnits(t, l, limit, "192.0.2.1"); refusals.Load() != tt.refusals || n != tt.want || srv.served.Load() != 5 {
			t.Errorf("%s: got %d refusals, %s charged, %d served", name, refusals.Load(), n, srv.served.Load())
		}
	}
}

func TestNoFields(t *testing.T) {
	t.Parallel()
	srv := startServer(t, memoryLimiter(), grpclimit.ServerConfig{NoFields: true, Charges: charges(
		grpclimit.Charge{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: grpclimit.ByPeer},
	)})
	header, _, err := srv.call(t.Context())
	if err != nil || header["ratelimit"] != nil || header["ratelimit-policy"] != nil {
		t.Errorf("got %v, %v; want no fields", header, err)
	}
	_, trailer, err := srv.call(t.Context())
	if trailer["ratelimit"] != nil || trailer["ratelimit-policy"] != nil || len(trailer["retry-after"]) != 1 {
		t.Errorf("got %v, %v; want retry-after alone", trailer, err)
	}
}
