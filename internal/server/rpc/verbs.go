package rpc

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// maxCells is how many cells a page of ListCells may have.
const maxCells = 10_000

// verbs serves headgate.v1.HeadgateService.
type verbs struct {
	pb.UnimplementedHeadgateServiceServer
	server *Server
}

// unaryMethod has the role that a caller of a unary method needs, and what makes its handler.
type unaryMethod struct {
	role       auth.Role
	newHandler func(method string) grpc.MethodHandler
}

// unaryMethods returns the unary methods by name.
func (v *verbs) unaryMethods() map[string]unaryMethod {
	s := v.server.service
	observe := withMaxTexts("headers", func(r *api.Observe) int { return len(r.Headers) }, s.Observe)
	explain := withMaxTexts("headers", func(r *api.Explain) int { return len(r.Headers) }, s.Explain)
	rollback := withMaxTexts("limits", func(r *api.Rollback) int { return len(r.Limits) }, s.Rollback)
	return map[string]unaryMethod{
		"Take":        {auth.RoleTake, unary[pb.Request, pb.Decision](s.Take)},
		"Check":       {auth.RoleTake, unary[pb.Request, pb.Decision](s.Check)},
		"FillUp":      {auth.RoleTake, unary[pb.Request, pb.FillUpResponse](s.FillUp)},
		"Batch":       {auth.RoleTake, unary[pb.BatchRequest, pb.BatchResponse](v.batch)},
		"Reserve":     {auth.RoleTake, unary[pb.ReserveRequest, pb.ReserveResponse](s.Reserve)},
		"Debit":       {auth.RoleTake, unary[pb.Request, pb.DebitResponse](s.Debit)},
		"Extend":      {auth.RoleTake, unary[pb.Request, pb.ExtendResponse](s.Extend)},
		"Settle":      {auth.RoleTake, unary[pb.SettleRequest, pb.SettleResponse](s.Settle)},
		"Cancel":      {auth.RoleTake, unary[pb.SettleRequest, pb.SettleResponse](s.Cancel)},
		"Acquire":     {auth.RoleTake, unary[pb.Request, pb.AcquireResponse](s.Acquire)},
		"Renew":       {auth.RoleTake, unary[pb.LeasesRequest, pb.LeasesResponse](s.Renew)},
		"Release":     {auth.RoleTake, unary[pb.LeasesRequest, pb.LeasesResponse](s.Release)},
		"Observe":     {auth.RoleTake, unary[pb.ObserveRequest, pb.ObserveResponse](observe)},
		"Inspect":     {auth.RoleRead, unary[pb.InspectRequest, pb.Status](v.inspect)},
		"Explain":     {auth.RoleRead, unary[pb.ExplainRequest, pb.ExplainResponse](explain)},
		"Usage":       {auth.RoleRead, unary[pb.UsageRequest, pb.UsageResponse](v.usage)},
		"ListLimits":  {auth.RoleRead, unary[pb.ListLimitsRequest, pb.ListLimitsResponse](s.Limits)},
		"ListCells":   {auth.RoleRead, handlerFor(v.cells)},
		"Reset":       {auth.RoleAdmin, unary[pb.ResetRequest, pb.ResetResponse](s.Reset)},
		"Refund":      {auth.RoleAdmin, unary[pb.RefundRequest, pb.RefundResponse](s.Refund)},
		"Block":       {auth.RoleAdmin, unary[pb.BlockRequest, pb.Status](s.Block)},
		"SetLimit":    {auth.RoleAdmin, unary[pb.SetLimitRequest, pb.ChangedResponse](s.SetLimit)},
		"SetOverride": {auth.RoleAdmin, unary[pb.SetOverrideRequest, pb.ChangedResponse](s.Override)},
		"SetPlan":     {auth.RoleAdmin, unary[pb.SetPlanRequest, pb.ChangedResponse](s.SetPlan)},
		"Rollback":    {auth.RoleAdmin, unary[pb.RollbackRequest, pb.ChangedResponse](rollback)},
	}
}

// service returns headgate's own Service. Methods that are not in unaryMethods need RoleTake: Stream, and those that
// are not implemented.
func (v *verbs) service() Service {
	table, desc := v.unaryMethods(), pb.HeadgateService_ServiceDesc
	desc.Methods = slices.Clone(desc.Methods)
	for i := range desc.Methods {
		m := &desc.Methods[i]
		if verb, ok := table[m.MethodName]; ok {
			m.Handler = verb.newHandler("/" + desc.ServiceName + "/" + m.MethodName)
		}
	}
	return Service{Desc: &desc, Impl: v, Objects: objectsOf, Role: func(method string) auth.Role {
		return cmp.Or(table[method].role, auth.RoleTake)
	}}
}

// unary returns what makes a handler that calls a verb of the service, and converts messages to and from its types.
func unary[Question, Answer, In, Out any](
	verb func(context.Context, *In) (*Out, error),
) func(method string) grpc.MethodHandler {
	return handlerFor(func(ctx context.Context, q *Question) (*Answer, error) { return invoke[Answer](ctx, q, verb) })
}

// invoke converts a message, calls a verb of the service with it, and converts the answer to a message.
func invoke[Answer, Question, In, Out any](
	ctx context.Context, q *Question, verb func(context.Context, *In) (*Out, error),
) (*Answer, error) {
	out, err := verb(ctx, wire.FromMessage[In](q))
	if err != nil {
		return nil, err
	}
	return wire.ToMessage[Answer](out), nil
}

// handlerFor returns what makes a handler that decodes the message of a call and runs answer inside the interceptors.
func handlerFor[Question, Answer any](
	answer func(context.Context, *Question) (*Answer, error),
) func(method string) grpc.MethodHandler {
	return func(method string) grpc.MethodHandler {
		return func(impl any, ctx context.Context, decode func(any) error, next grpc.UnaryServerInterceptor) (
			any, error,
		) {
			q := new(Question)
			if err := decode(q); err != nil {
				return nil, err
			}
			return next(ctx, q, &grpc.UnaryServerInfo{Server: impl, FullMethod: method},
				func(ctx context.Context, q any) (any, error) { return answer(ctx, q.(*Question)) })
		}
	}
}

// objectsOf estimates the memory of a message, and of the answer where that may be large by itself (cells, attempts,
// usage), in charges. It counts answers of ListLimits and Explain as 1.
func objectsOf(message any) int {
	switch m := message.(type) {
	case interface{ GetCharges() []*pb.Charge }:
		return len(m.GetCharges())
	case *pb.ReserveRequest:
		return len(m.GetRequest().GetCharges())
	case *pb.LeasesRequest:
		return len(m.GetHeld())
	case *pb.BatchRequest:
		n := len(m.GetRequests())
		for _, r := range m.GetRequests() {
			n += len(r.GetCharges())
		}
		return n
	case *pb.StreamRequest: // only one of the three is set
		return objectsOf(m.GetTake()) + objectsOf(m.GetCheck()) + objectsOf(m.GetBatch())
	case *pb.ListCellsRequest:
		q := store.Query{Max: int(min(m.GetMax(), maxCells))}
		return 2 * q.PageSize() // a cell takes more than a charge
	case *pb.InspectRequest:
		return 1 + int(min(max(m.GetAttempts(), 0), api.MaxAttempts))/10 // ten attempts take less than a charge
	case *pb.UsageRequest:
		return 2 * max(len(m.GetLimits()), store.DefaultMax)
	}
	return 1
}

// noHold holds no memory for an answer, since objectsOf has counted it before: a usage as one of store.DefaultMax
// limits at least, also if fewer are named; a catalog may have more.
func noHold(int) error { return nil }

func (v *verbs) batch(ctx context.Context, b *api.Batch) (*api.Answers, error) {
	return v.server.service.Batch(ctx, b, func(err error) {
		if ctx.Err() == nil {
			service.LogFailure(v.server.log, pb.HeadgateService_Batch_FullMethodName, err, 1)
		}
	})
}

func (v *verbs) inspect(ctx context.Context, r *api.InspectRequest) (*api.Status, error) {
	return v.server.service.Inspect(ctx, r, noHold)
}

func (v *verbs) usage(ctx context.Context, q *api.UsageQuery) (*api.Usage, error) {
	if err := (law.Cell{Key: q.Key}).ValidText(); err != nil {
		return nil, err
	}
	return v.server.service.Usage(ctx, q, noHold)
}

func (v *verbs) cells(ctx context.Context, r *pb.ListCellsRequest) (*pb.ListCellsResponse, error) {
	q := &api.CellsQuery{
		Limit: r.GetLimit(), Blocked: r.GetBlocked(), Max: int(r.GetMax()),
		AfterLimit: r.GetAfter().GetLimit(), AfterKey: r.GetAfter().GetKey(),
	}
	if q.Max < 0 || q.Max > maxCells {
		return nil, headgate.Invalid("max", "%d is not a number from 0 to %d", q.Max, maxCells)
	}
	for _, c := range []law.Cell{{Limit: q.AfterLimit, Key: q.AfterKey}, {Limit: q.Limit}} {
		if err := c.ValidText(); err != nil {
			return nil, err
		}
	}
	cells, err := v.server.service.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	return wire.ToMessage[pb.ListCellsResponse](cells), nil
}

// withMaxTexts wraps a verb to reject messages with too many texts in a field.
func withMaxTexts[In, Out any](field string, count func(*In) int, verb func(context.Context, *In) (*Out, error)) func(
	context.Context, *In,
) (*Out, error) {
	return func(ctx context.Context, in *In) (*Out, error) {
		if count(in) > api.MaxTexts {
			return nil, headgate.Invalid(field, "are more than %d", api.MaxTexts)
		}
		return verb(ctx, in)
	}
}
