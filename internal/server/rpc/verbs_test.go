package rpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

func request(limit, key, cost string) *pb.Request {
	return &pb.Request{Charges: []*pb.Charge{{Limit: limit, Key: &key, Cost: cost}}}
}

// calls returns a call of each verb, with the role that it needs.
func calls(c pb.HeadgateServiceClient) map[string]struct {
	role string
	call func(context.Context) (proto.Message, error)
} {
	type call = struct {
		role string
		call func(context.Context) (proto.Message, error)
	}
	key := proto.String("k")
	acquire := request("concurrency 1 ttl 1m", "k", "")
	batch := &pb.BatchRequest{Requests: []*pb.Request{request("api", "k", ""), request("nope", "k", "")}}
	reserve := &pb.ReserveRequest{Request: request("token-bucket 1/1h burst 3", "k", "4"), Wait: "2h"}
	leases := &pb.LeasesRequest{Held: []*pb.LeaseToken{{Limit: acquire.Charges[0].Limit, Key: key, Number: 9}}}
	id := func() *pb.Request { r := request("10/1h", "k", "2"); r.Id = "one"; return r }
	settle := &pb.SettleRequest{Id: "one", Charges: []*pb.Charge{{Limit: "10/1h", Key: key, Cost: "1"}}}
	cancel := &pb.SettleRequest{Id: "three", Charges: request("5/1h", "k", "").Charges}
	return map[string]call{
		"Take":   {"take", func(ctx context.Context) (proto.Message, error) { return c.Take(ctx, id()) }},
		"Check":  {"take", func(ctx context.Context) (proto.Message, error) { return c.Check(ctx, request("api", "k", "0.5")) }},
		"FillUp": {"take", func(ctx context.Context) (proto.Message, error) { return c.FillUp(ctx, request("7/1h", "k", "9")) }},
		"Extend": {"take", func(ctx context.Context) (proto.Message, error) { return c.Extend(ctx, id()) }},
		"Settle": {"take", func(ctx context.Context) (proto.Message, error) { return c.Settle(ctx, settle) }},
		"Cancel": {"take", func(ctx context.Context) (proto.Message, error) {
			// A caller without the role has no id to cancel, and must still be denied for its role.
			_, _ = c.Take(ctx, &pb.Request{Charges: cancel.Charges, Id: cancel.Id})
			return c.Cancel(ctx, cancel)
		}},
		"Debit": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Debit(ctx, &pb.Request{Charges: request("10/1h", "k", "20").Charges, Id: "two"})
		}},
		"Acquire": {"take", func(ctx context.Context) (proto.Message, error) { return c.Acquire(ctx, acquire) }},
		"Batch":   {"take", func(ctx context.Context) (proto.Message, error) { return c.Batch(ctx, batch) }},
		"Reserve": {"take", func(ctx context.Context) (proto.Message, error) { return c.Reserve(ctx, reserve) }},
		"Renew":   {"take", func(ctx context.Context) (proto.Message, error) { return c.Renew(ctx, leases) }},
		"Release": {"take", func(ctx context.Context) (proto.Message, error) { return c.Release(ctx, leases) }},
		"Inspect": {"read", func(ctx context.Context) (proto.Message, error) {
			return c.Inspect(ctx, &pb.InspectRequest{Limit: "api", Key: key})
		}},
		"Usage": {"read", func(ctx context.Context) (proto.Message, error) {
			return c.Usage(ctx, &pb.UsageRequest{Key: key, Limits: []string{"api"}})
		}},
		"ListLimits": {"read", func(ctx context.Context) (proto.Message, error) {
			return c.ListLimits(ctx, &pb.ListLimitsRequest{})
		}},
		"ListCells": {"read", func(ctx context.Context) (proto.Message, error) {
			return c.ListCells(ctx, &pb.ListCellsRequest{Max: 10})
		}},
		"Explain": {"read", func(ctx context.Context) (proto.Message, error) {
			return c.Explain(ctx, &pb.ExplainRequest{Method: "GET", Uri: "/a"})
		}},
		"Observe": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Observe(ctx, &pb.ObserveRequest{Limit: "api", Key: key, Status: 200})
		}},
		"Reset": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.Reset(ctx, &pb.ResetRequest{Limit: "api", Key: key})
		}},
		"Refund": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.Refund(ctx, &pb.RefundRequest{Limit: "10/1h", Key: key, Cost: "3", Reason: "test"})
		}},
		"Block": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.Block(ctx, &pb.BlockRequest{Limit: "api", Key: key, For: "1m", Reason: "test"})
		}},
		"SetLimit": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.SetLimit(ctx, &pb.SetLimitRequest{Name: "fresh", Limit: "token-bucket 10/1m", Reason: "test"})
		}},
		"SetOverride": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.SetOverride(ctx, &pb.SetOverrideRequest{Limit: "fresh", Key: key, Override: "token-bucket 20/1m"})
		}},
		"SetPlan": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.SetPlan(ctx, &pb.SetPlanRequest{Key: key, Plan: "gold", For: "1h"})
		}},
		"Rollback": {"admin", func(ctx context.Context) (proto.Message, error) {
			return c.Rollback(ctx, &pb.RollbackRequest{Version: new(int64), Limits: []string{"fresh"}, DryRun: true})
		}},
		"Stream": {"take", func(ctx context.Context) (proto.Message, error) {
			s, err := c.Stream(ctx)
			if err != nil {
				return nil, err
			}
			_ = s.Send(&pb.StreamRequest{Id: 7, Verb: &pb.StreamRequest_Take{Take: request("api", "k", "")}})
			return s.Recv()
		}},
	}
}

func TestEveryVerbNeedsItsRole(t *testing.T) {
	t.Parallel()
	file, tokens := openTokens(t)
	st := memory.New(&memory.Config{Names: true})
	_, addr := serve(t, st, &rpc.Config{Tokens: file})
	verbs := calls(pb.NewHeadgateServiceClient(dial(t, addr)))
	names := []string{ // those that share the id one stand in their order
		"Take", "Extend", "Settle", "Debit", "Refund", "Cancel",
		"Check", "FillUp", "Batch", "Reserve", "Acquire", "Renew", "Release", "Inspect",
		"Usage", "ListLimits", "ListCells", "Explain", "Observe", "Reset", "Block", "SetLimit", "SetOverride",
		"SetPlan", "Rollback", "Stream",
	}
	var described []string
	for _, m := range pb.HeadgateService_ServiceDesc.Methods {
		described = append(described, m.MethodName)
	}
	for _, s := range pb.HeadgateService_ServiceDesc.Streams {
		described = append(described, s.StreamName)
	}
	got, want := slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(described))
	if !slices.Equal(got, want) {
		t.Fatalf("got calls of %s, want %s", got, want)
	}
	for _, name := range names {
		v := verbs[name]
		for _, role := range []string{"take", "read", "admin", "nobody"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+tokens[role])
			want := codes.OK
			switch {
			case role == "nobody":
				want = codes.Unauthenticated
			case role != v.role && role != "admin":
				want = codes.PermissionDenied
			}
			if out, err := v.call(ctx); status.Code(err) != want {
				t.Errorf("%s as %s: %v, %v, want %s", name, role, out, err, want)
			}
		}
	}
}

func TestAnswersOfVerbs(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(&memory.Config{Names: true}), nil)
	c := pb.NewHeadgateServiceClient(dial(t, addr))
	ctx := t.Context()
	filled, err := c.FillUp(ctx, request("token-bucket 1/1h burst 7", "k", "9.5"))
	if err != nil || filled.Accepted != "7" || filled.Level != "7" || !filled.Brim || !filled.Decision.Allowed {
		t.Errorf("fill up: %v, %v, want 7 accepted up to the brim", filled, err)
	}
	d, err := c.Take(ctx, request("token-bucket 1/1h burst 7", "k", "8"))
	if err != nil || d.Allowed || d.RetryAfterMs != nil {
		t.Errorf("more than the capacity: %v, %v, want it refused for ever", d, err)
	}
	d, err = c.Take(ctx, request("token-bucket 1/1h burst 7", "k", "1"))
	if err != nil || d.Allowed || d.GetRetryAfterMs() <= 0 {
		t.Errorf("after the fill up: %v, %v, want a refusal with a retry", d, err)
	}
	key := "k"
	d, err = c.Take(ctx, &pb.Request{
		Charges: []*pb.Charge{{Limit: "api", Key: &key}, {Limit: "login", Key: &key, Cost: "6"}},
	})
	if err != nil || d.Allowed || d.Limit != "login" || d.Key != "k" || len(d.Each) != 2 || !d.Each[0].Allowed {
		t.Errorf("two charges: %v, %v, want login to refuse", d, err)
	}
	b, err := c.Batch(ctx, &pb.BatchRequest{Requests: []*pb.Request{request("api", "k", ""), request("nope", "k", "")}})
	if err != nil || !b.Answers[0].GetDecision().GetAllowed() || b.Answers[1].GetProblem().GetField() != "limit" {
		t.Errorf("batch: %v, %v, want an admission and a problem", b, err)
	}
	acquired, err := c.Acquire(ctx, request("concurrency 1 ttl 1m", "k", ""))
	if err != nil || len(acquired.Held) != 1 || acquired.TtlMs != 60_000 {
		t.Fatalf("acquire: %v, %v, want a lease of a minute", acquired, err)
	}
	for _, want := range []bool{false, true} {
		if l, err := c.Release(ctx, &pb.LeasesRequest{Held: acquired.Held}); err != nil || l.Lost != want {
			t.Errorf("release: %v, %v, want lost %t", l, err, want)
		}
	}
	s, err := c.Block(ctx, &pb.BlockRequest{Limit: "login", Key: &key, For: "1h", Reason: "guesses"})
	if err != nil || s.BlockedUntil == nil {
		t.Errorf("block: %v, %v, want a time", s, err)
	}
	if s, err = c.Inspect(ctx, &pb.InspectRequest{Limit: "login", Key: &key}); err != nil || s.Reason != "guesses" || s.Used != "0" {
		t.Errorf("inspect after a block: %v, %v, want its reason", s, err)
	}
	providerKey := "a provider"
	observed, err := c.Observe(ctx, &pb.ObserveRequest{
		Limit: "login", Key: &providerKey, Status: 429, Headers: map[string]string{"retry-after": "20"},
	})
	if err != nil || observed.BlockedForMs < 19_000 || observed.BlockedForMs > 20_000 {
		t.Errorf("observe: %v, %v, want a block of about 20 s", observed, err)
	}
	if s, err = c.Inspect(ctx, &pb.InspectRequest{Limit: "login", Key: &providerKey}); err != nil || s.BlockedUntil == nil {
		t.Errorf("inspect after observe: %v, %v, want a block", s, err)
	}
}

func TestErrorsHaveDetails(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	_, addr := serve(t, st, nil)
	c := pb.NewHeadgateServiceClient(dial(t, addr, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20))))
	ctx := t.Context()
	for _, tt := range []struct {
		request *pb.Request
		field   string
	}{
		{&pb.Request{}, "limit"},
		{&pb.Request{Charges: []*pb.Charge{{Limit: "api"}}}, "key"},
		{request("nope", "k", ""), "limit"},
		{request("api", "k", "-1"), "cost"},
		{request("api", "k", "1e"), "cost"},
		{request("api", strings.Repeat("k", 513), ""), "key"},
		{request("api", "a\x00b", ""), "key"},
		{&pb.Request{Charges: make([]*pb.Charge, api.MaxCharges+1)}, "charges"},
	} {
		_, err := c.Take(ctx, tt.request)
		field, info := "", &errdetails.ErrorInfo{}
		for _, detail := range status.Convert(err).Details() {
			switch d := detail.(type) {
			case *errdetails.BadRequest:
				field = d.FieldViolations[0].Field
			case *errdetails.ErrorInfo:
				info = d
			}
		}
		p := api.ParseMetadata(info.Metadata)
		if status.Code(err) != codes.InvalidArgument || field != tt.field || info.Domain != "headgate" ||
			p == nil || p.Status != 400 || p.Field != field {
			t.Errorf("%.60v: %.200v, field %q, %v, want %q", tt.request, err, field, info, tt.field)
		}
	}
	if _, err := c.Take(ctx, request("api", "a\xffb", "")); err == nil {
		t.Error("a key that is not UTF-8: got no error")
	}
	if _, err := c.Take(ctx, request("api", strings.Repeat("k", 5<<20), "")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("5 MiB: got %v, want ResourceExhausted", err)
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Take(canceled, request("api", "k", "")); status.Code(err) != codes.Canceled {
		t.Errorf("a canceled context: got %v, want Canceled", err)
	}
	st.Close()
	var trailer metadata.MD
	_, err := c.Take(ctx, request("api", "k", ""), grpc.Trailer(&trailer))
	if pushback := trailer["grpc-retry-pushback-ms"]; !slices.Equal(pushback, []string{"1000"}) {
		t.Errorf("grpc-retry-pushback-ms: got %q, want 1000", pushback)
	}
	hasRetry := false
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*errdetails.RetryInfo); ok {
			hasRetry = r.RetryDelay.AsDuration() == time.Second
		}
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "Nothing was charged") || !hasRetry {
		t.Errorf("a closed store: got %v, %v, want Unavailable", err, status.Convert(err).Details())
	}
}

func TestTheStreamAnswersEachRequest(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	s, err := pb.NewHeadgateServiceClient(dial(t, addr)).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000 // more than the 1000 requests that may be in flight
	go func() {
		for i := range uint64(n) {
			take := &pb.StreamRequest_Take{Take: request("fixed-window 50/1d from-first", "k", "")}
			r := &pb.StreamRequest{Id: i, Verb: take}
			switch i % 3 {
			case 1:
				r = &pb.StreamRequest{Id: i}
			case 2:
				batch := &pb.BatchRequest{Requests: []*pb.Request{request("5/1d", "l", "")}}
				r.Verb = &pb.StreamRequest_Batch{Batch: batch}
			}
			if s.Send(r) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	answered, allowed := map[uint64]bool{}, 0
	for {
		a, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if answered[a.Id] {
			t.Fatalf("%d is answered twice", a.Id)
		}
		answered[a.Id] = true
		switch {
		case a.Id%3 == 1 && a.GetProblem().GetField() == "verb", a.Id%3 == 2 && a.GetBatch() != nil:
		case a.Id%3 == 0 && a.GetDecision() != nil:
			if a.GetDecision().Allowed {
				allowed++
			}
		default:
			t.Fatalf("got the answer %v to request %d", a, a.Id)
		}
	}
	if len(answered) != n || allowed != 50 {
		t.Errorf("%d answers to %d requests, %d allowed, want 50", len(answered), n, allowed)
	}
}

func TestAStreamEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	server, addr := serve(t, memory.New(nil), nil)
	s, err := pb.NewHeadgateServiceClient(dial(t, addr)).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamRequest{Id: 1, Verb: &pb.StreamRequest_Check{Check: request("api", "k", "")}})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "The server stops") {
		t.Errorf("got %v, want Unavailable", err)
	}
}

// TestACancelledStreamEnds opens and cancels more streams of a connection, one after the other, than may be open.
func TestACancelledStreamEnds(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	client := pb.NewHeadgateServiceClient(dial(t, addr))
	parent, cancelAll := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancelAll()
	for i := range tier.Pick(500, 1500, 15_000) { // 250 streams may be open at a time
		ctx, cancel := context.WithCancel(parent)
		s, err := client.Stream(ctx)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		_ = s.Send(&pb.StreamRequest{Id: 1, Verb: &pb.StreamRequest_Check{Check: request("api", "k", "")}})
		if _, err := s.Recv(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		cancel()
	}
}

func TestReflectionNamesTheServices(t *testing.T) {
	t.Parallel()
	file, _ := openTokens(t)
	_, addr := serve(t, memory.New(nil), &rpc.Config{Tokens: file})
	s, err := reflectionpb.NewServerReflectionClient(dial(t, addr)).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{ListServices: "*"},
	})
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, v := range r.GetListServicesResponse().GetService() {
		names[v.Name] = true
	}
	if !names["headgate.v1.HeadgateService"] || !names["grpc.health.v1.Health"] {
		t.Errorf("got %v, want headgate's service and health", names)
	}
}
