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

func of(limit, key, cost string) *pb.Request {
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
	held := of("concurrency 1 ttl 1m", "k", "")
	leases := &pb.LeasesRequest{Held: []*pb.LeaseToken{{Limit: held.Charges[0].Limit, Key: key, Number: 9}}}
	id := func() *pb.Request { r := of("10/1h", "k", "2"); r.Id = "one"; return r }
	settle := func(cost string) *pb.SettleRequest {
		return &pb.SettleRequest{Id: "one", Charges: []*pb.Charge{{Limit: "10/1h", Key: key, Cost: cost}}}
	}
	return map[string]call{
		"Take":   {"take", func(ctx context.Context) (proto.Message, error) { return c.Take(ctx, id()) }},
		"Check":  {"take", func(ctx context.Context) (proto.Message, error) { return c.Check(ctx, of("api", "k", "0.5")) }},
		"FillUp": {"take", func(ctx context.Context) (proto.Message, error) { return c.FillUp(ctx, of("7/1h", "k", "9")) }},
		"Extend": {"take", func(ctx context.Context) (proto.Message, error) { return c.Extend(ctx, id()) }},
		"Settle": {"take", func(ctx context.Context) (proto.Message, error) { return c.Settle(ctx, settle("1")) }},
		"Cancel": {"take", func(ctx context.Context) (proto.Message, error) { return c.Cancel(ctx, settle("")) }},
		"Debit": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Debit(ctx, &pb.Request{Charges: of("10/1h", "k", "20").Charges, Id: "two"})
		}},
		"Acquire": {"take", func(ctx context.Context) (proto.Message, error) { return c.Acquire(ctx, held) }},
		"Batch": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Batch(ctx, &pb.BatchRequest{Requests: []*pb.Request{of("api", "k", ""), of("nope", "k", "")}})
		}},
		"Reserve": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Reserve(ctx, &pb.ReserveRequest{Request: of("token-bucket 1/1h burst 3", "k", "4"), Wait: "2h"})
		}},
		"Renew": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Renew(ctx, leases)
		}},
		"Release": {"take", func(ctx context.Context) (proto.Message, error) {
			return c.Release(ctx, leases)
		}},
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
			_ = s.Send(&pb.StreamRequest{Id: 7, Verb: &pb.StreamRequest_Take{Take: of("api", "k", "")}})
			return s.Recv()
		}},
	}
}

func TestEveryVerbNeedsItsRole(t *testing.T) {
	t.Parallel()
	file, of := tokens(t)
	st := memory.New(&memory.Config{Names: true})
	_, addr := serve(t, st, &rpc.Config{Tokens: file})
	all := calls(pb.NewHeadgateServiceClient(dial(t, addr)))
	for _, m := range pb.HeadgateService_ServiceDesc.Methods {
		if all[m.MethodName].call == nil {
			t.Errorf("%s is not tested", m.MethodName)
		}
	}
	for _, name := range []string{ // those of one id in their order
		"Take", "Extend", "Settle", "Debit", "Refund",
		"Check", "FillUp", "Batch", "Reserve", "Acquire", "Renew", "Release", "Inspect",
		"Usage", "ListLimits", "ListCells", "Explain", "Observe", "Reset", "Block", "SetLimit", "SetOverride",
		"SetPlan", "Rollback", "Stream",
	} {
		v := all[name]
		for _, role := range []string{"take", "read", "admin", "nobody"} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+of[role])
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

func TestAnswersAreThoseOfTheService(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(&memory.Config{Names: true}), nil)
	c := pb.NewHeadgateServiceClient(dial(t, addr))
	ctx := t.Context()
	f, err := c.FillUp(ctx, of("token-bucket 1/1h burst 7", "k", "9.5"))
	if err != nil || f.Accepted != "7" || f.Level != "7" || !f.Brim || !f.Decision.Allowed {
		t.Errorf("%v, %v", f, err)
	}
	d, err := c.Take(ctx, of("token-bucket 1/1h burst 7", "k", "8"))
	if err != nil || d.Allowed || d.RetryAfterMs != nil {
		t.Errorf("what can never pass: %v, %v", d, err)
	}
	d, err = c.Take(ctx, of("token-bucket 1/1h burst 7", "k", "1"))
	if err != nil || d.Allowed || d.GetRetryAfterMs() <= 0 {
		t.Errorf("a refusal is a decision: %v, %v", d, err)
	}
	key := "k"
	d, err = c.Take(ctx, &pb.Request{
		Charges: []*pb.Charge{{Limit: "api", Key: &key}, {Limit: "login", Key: &key, Cost: "6"}},
	})
	if err != nil || d.Allowed || d.Limit != "login" || d.Key != "k" || len(d.Each) != 2 || !d.Each[0].Allowed {
		t.Errorf("several charges: %v, %v", d, err)
	}
	b, err := c.Batch(ctx, &pb.BatchRequest{Requests: []*pb.Request{of("api", "k", ""), of("nope", "k", "")}})
	if err != nil || !b.Answers[0].GetDecision().GetAllowed() || b.Answers[1].GetProblem().GetField() != "limit" {
		t.Errorf("%v, %v", b, err)
	}
	a, err := c.Acquire(ctx, of("concurrency 1 ttl 1m", "k", ""))
	if err != nil || len(a.Held) != 1 || a.TtlMs != 60_000 {
		t.Fatalf("%v, %v", a, err)
	}
	for _, want := range []bool{false, true} {
		if l, err := c.Release(ctx, &pb.LeasesRequest{Held: a.Held}); err != nil || l.Lost != want {
			t.Errorf("%v, %v, want lost %t", l, err, want)
		}
	}
	s, err := c.Block(ctx, &pb.BlockRequest{Limit: "login", Key: &key, For: "1h", Reason: "guesses"})
	if err != nil || s.BlockedUntil == nil {
		t.Errorf("%v, %v", s, err)
	}
	if s, err = c.Inspect(ctx, &pb.InspectRequest{Limit: "login", Key: &key}); err != nil || s.Reason != "guesses" || s.Used != "0" {
		t.Errorf("%v, %v", s, err)
	}
	other := "a provider"
	o, err := c.Observe(ctx, &pb.ObserveRequest{
		Limit: "login", Key: &other, Status: 429, Headers: map[string]string{"retry-after": "20"},
	})
	if err != nil || o.BlockedForMs < 19_000 || o.BlockedForMs > 20_000 {
		t.Errorf("%v, %v", o, err)
	}
	if s, err = c.Inspect(ctx, &pb.InspectRequest{Limit: "login", Key: &other}); err != nil || s.BlockedUntil == nil {
		t.Errorf("%v, %v", s, err)
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	st := memory.New(nil)
	_, addr := serve(t, st, nil)
	c := pb.NewHeadgateServiceClient(dial(t, addr, grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20))))
	ctx := t.Context()
	for _, x := range []struct {
		request *pb.Request
		field   string
	}{
		{&pb.Request{}, "limit"},
		{&pb.Request{Charges: []*pb.Charge{{Limit: "api"}}}, "key"},
		{of("nope", "k", ""), "limit"},
		{of("api", "k", "-1"), "cost"},
		{of("api", "k", "1e"), "cost"},
		{of("api", strings.Repeat("k", 513), ""), "key"},
		{of("api", "a\x00b", ""), "key"},
		{&pb.Request{Charges: make([]*pb.Charge, api.MaxCharges+1)}, "charges"},
	} {
		_, err := c.Take(ctx, x.request)
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
		if status.Code(err) != codes.InvalidArgument || field != x.field || info.Domain != "headgate" ||
			p == nil || p.Status != 400 || p.Field != field {
			t.Errorf("%.60v: %.200v, field %q, %v", x.request, err, field, info)
		}
	}
	if _, err := c.Take(ctx, of("api", "a\xffb", "")); err == nil {
		t.Error("a key that is not UTF-8 was taken")
	}
	if _, err := c.Take(ctx, of("api", strings.Repeat("k", 5<<20), "")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("5 MiB: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Take(ended, of("api", "k", "")); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	st.Close()
	var trailer metadata.MD
	_, err := c.Take(ctx, of("api", "k", ""), grpc.Trailer(&trailer))
	if again := trailer["grpc-retry-pushback-ms"]; !slices.Equal(again, []string{"1000"}) {
		t.Errorf("a client with a retry policy is told %q", again)
	}
	retry := false
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*errdetails.RetryInfo); ok {
			retry = r.RetryDelay.AsDuration() == time.Second
		}
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "Nothing was charged") || !retry {
		t.Errorf("a store that is away: %v, %v", err, status.Convert(err).Details())
	}
}

func TestTheStreamAnswersEachRequest(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	s, err := pb.NewHeadgateServiceClient(dial(t, addr)).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const n = 3000 // more than may be under way
	go func() {
		for i := range uint64(n) {
			take := &pb.StreamRequest_Take{Take: of("fixed-window 50/1d from-first", "k", "")}
			r := &pb.StreamRequest{Id: i, Verb: take}
			switch i % 3 {
			case 1:
				r = &pb.StreamRequest{Id: i}
			case 2:
				r.Verb = &pb.StreamRequest_Batch{Batch: &pb.BatchRequest{Requests: []*pb.Request{of("5/1d", "l", "")}}}
			}
			if s.Send(r) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	seen, allowed := map[uint64]bool{}, 0
	for {
		a, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if seen[a.Id] {
			t.Fatalf("%d is answered twice", a.Id)
		}
		seen[a.Id] = true
		switch {
		case a.Id%3 == 1 && a.GetProblem().GetField() == "verb", a.Id%3 == 2 && a.GetBatch() != nil:
		case a.Id%3 == 0 && a.GetDecision() != nil:
			if a.GetDecision().Allowed {
				allowed++
			}
		default:
			t.Fatalf("%v", a)
		}
	}
	if len(seen) != n || allowed != 50 {
		t.Errorf("%d answers to %d requests, %d allowed of 50", len(seen), n, allowed)
	}
}

func TestAStreamEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	server, addr := serve(t, memory.New(nil), nil)
	s, err := pb.NewHeadgateServiceClient(dial(t, addr)).Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Send(&pb.StreamRequest{Id: 1, Verb: &pb.StreamRequest_Check{Check: of("api", "k", "")}})
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	within, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := server.Shutdown(within); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "The server stops") {
		t.Error(err)
	}
}

// TestACancelledStreamEnds cancels more streams of one connection than may be open on it at a time.
func TestACancelledStreamEnds(t *testing.T) {
	t.Parallel()
	_, addr := serve(t, memory.New(nil), nil)
	client := pb.NewHeadgateServiceClient(dial(t, addr))
	within, done := context.WithTimeout(t.Context(), 5*time.Minute)
	defer done()
	for i := range tier.Pick(500, 1500, 15_000) { // the server has 250 places for streams
		ctx, cancel := context.WithCancel(within)
		s, err := client.Stream(ctx)
		if err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		_ = s.Send(&pb.StreamRequest{Id: 1, Verb: &pb.StreamRequest_Check{Check: of("api", "k", "")}})
		if _, err := s.Recv(); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
		cancel()
	}
}

func TestReflectionNamesTheServices(t *testing.T) {
	t.Parallel()
	file, _ := tokens(t)
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
		t.Errorf("%v", names)
	}
}
