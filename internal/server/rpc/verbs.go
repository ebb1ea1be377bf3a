package rpc

import (
	"context"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// maxCells is how many keys a page may have.
const maxCells = 10_000

// verbs serve headgate.v1.HeadgateService.
type verbs struct {
	pb.UnimplementedHeadgateServiceServer
	of *Server
}

// roleOf is what a caller needs to call a verb.
func roleOf(method string) auth.Role {
	switch method {
	case "Reset", "Block", "SetLimit", "SetOverride", "SetPlan", "Rollback":
		return auth.RoleAdmin
	case "Inspect", "Usage", "ListLimits", "ListCells", "Explain":
		return auth.RoleRead
	}
	return auth.RoleTake
}

// objects is how many charges a message carries, or answers with as much.
func objects(message any) int {
	switch m := message.(type) {
	case *pb.Request:
		return len(m.GetCharges())
	case *pb.ReserveRequest:
		return len(m.GetRequest().GetCharges())
	case *pb.SettleRequest:
		return len(m.GetCharges())
	case *pb.LeasesRequest:
		return len(m.GetHeld())
	case *pb.BatchRequest:
		n := len(m.GetRequests())
		for _, r := range m.GetRequests() {
			n += len(r.GetCharges())
		}
		return n
	case *pb.ListCellsRequest:
		return 2 * int(min(m.GetMax(), maxCells)) // a cell takes more than a charge
	case *pb.InspectRequest:
		return 1 + int(min(max(m.GetAttempts(), 0), api.MaxAttempts))/10 // ten attempts take less than a charge
	case *pb.UsageRequest:
		return 2 * max(len(m.GetLimits()), store.DefaultMax)
	}
	return 1
}

// answered makes a message of what a verb returns.
func answered[A, M any](a *A, err error, message func(*A) *M) (*M, error) {
	if err != nil {
		return nil, err
	}
	return message(a), nil
}

func (v *verbs) service() *service.Service { return v.of.service }

// Take implements pb.HeadgateServiceServer.
func (v *verbs) Take(ctx context.Context, r *pb.Request) (*pb.Decision, error) {
	d, err := v.service().Take(ctx, wire.Request(r), false)
	return answered(d, err, wire.DecisionOf)
}

// Check implements pb.HeadgateServiceServer.
func (v *verbs) Check(ctx context.Context, r *pb.Request) (*pb.Decision, error) {
	d, err := v.service().Take(ctx, wire.Request(r), true)
	return answered(d, err, wire.DecisionOf)
}

// FillUp implements pb.HeadgateServiceServer.
func (v *verbs) FillUp(ctx context.Context, r *pb.Request) (*pb.FillUpResponse, error) {
	f, err := v.service().FillUp(ctx, wire.Request(r))
	return answered(f, err, wire.FilledOf)
}

// Batch implements pb.HeadgateServiceServer.
func (v *verbs) Batch(ctx context.Context, r *pb.BatchRequest) (*pb.BatchResponse, error) {
	a, err := v.service().Batch(ctx, wire.Batch(r), func(err error) {
		if ctx.Err() == nil {
			v.of.logFailure(pb.HeadgateService_Batch_FullMethodName, err)
		}
	})
	return answered(a, err, wire.AnswersOf)
}

// Reserve implements pb.HeadgateServiceServer.
func (v *verbs) Reserve(ctx context.Context, r *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	a, err := v.service().Reserve(ctx, wire.Reserve(r))
	return answered(a, err, wire.ReservedOf)
}

// Extend implements pb.HeadgateServiceServer.
func (v *verbs) Extend(ctx context.Context, r *pb.Request) (*pb.ExtendResponse, error) {
	a, err := v.service().Extend(ctx, wire.Request(r))
	return answered(a, err, wire.ExtendedOf)
}

// Settle implements pb.HeadgateServiceServer.
func (v *verbs) Settle(ctx context.Context, r *pb.SettleRequest) (*pb.SettleResponse, error) {
	a, err := v.service().Settle(ctx, wire.Settle(r))
	return answered(a, err, wire.SettledOf)
}

// Cancel implements pb.HeadgateServiceServer.
func (v *verbs) Cancel(ctx context.Context, r *pb.SettleRequest) (*pb.SettleResponse, error) {
	a, err := v.service().Cancel(ctx, wire.Settle(r))
	return answered(a, err, wire.SettledOf)
}

// Acquire implements pb.HeadgateServiceServer.
func (v *verbs) Acquire(ctx context.Context, r *pb.Request) (*pb.AcquireResponse, error) {
	a, err := v.service().Acquire(ctx, wire.Request(r))
	return answered(a, err, wire.AcquiredOf)
}

// Renew implements pb.HeadgateServiceServer.
func (v *verbs) Renew(ctx context.Context, r *pb.LeasesRequest) (*pb.LeasesResponse, error) {
	a, err := v.service().Renew(ctx, wire.Leases(r))
	return answered(a, err, wire.LostOf)
}

// Release implements pb.HeadgateServiceServer.
func (v *verbs) Release(ctx context.Context, r *pb.LeasesRequest) (*pb.LeasesResponse, error) {
	a, err := v.service().Release(ctx, wire.Leases(r))
	return answered(a, err, wire.LostOf)
}

// Inspect implements pb.HeadgateServiceServer.
func (v *verbs) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.Status, error) {
	a, err := v.service().Inspect(ctx, wire.Inspect(r), func(int) error { return nil }) // held for by objects
	return answered(a, err, wire.StatusOf)
}

// Usage implements pb.HeadgateServiceServer.
func (v *verbs) Usage(ctx context.Context, r *pb.UsageRequest) (*pb.UsageResponse, error) {
	if r.Key == nil {
		return nil, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	q := &service.UsageQuery{Key: r.GetKey(), Limits: r.GetLimits(), Authors: r.GetAuthors()}
	if err := (law.Cell{Key: q.Key}).ValidText(); err != nil {
		return nil, err
	}
	u, err := v.service().Usage(ctx, q, func(int) error { return nil }) // held for by objects
	return answered(u, err, wire.UsageOf)
}

// ListLimits implements pb.HeadgateServiceServer.
func (v *verbs) ListLimits(ctx context.Context, _ *pb.ListLimitsRequest) (*pb.ListLimitsResponse, error) {
	a, err := v.service().Limits(ctx)
	return answered(a, err, wire.LimitsOf)
}

// ListCells implements pb.HeadgateServiceServer.
func (v *verbs) ListCells(ctx context.Context, r *pb.ListCellsRequest) (*pb.ListCellsResponse, error) {
	q := store.Query{After: law.Cell{Limit: r.GetAfter().GetLimit(), Key: r.GetAfter().GetKey()}}
	if q.Max = int(r.GetMax()); q.Max < 0 || q.Max > maxCells {
		return nil, headgate.Invalid("max", "%d is not a number from 0 to %d", q.Max, maxCells)
	}
	for _, c := range []law.Cell{q.After, {Limit: r.GetLimit()}} {
		if err := c.ValidText(); err != nil {
			return nil, err
		}
	}
	a, err := v.service().Cells(ctx, r.GetLimit(), r.GetBlocked(), q)
	return answered(a, err, wire.CellsOf)
}

// Explain implements pb.HeadgateServiceServer.
func (v *verbs) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if err := few("headers", len(r.GetHeaders())); err != nil {
		return nil, err
	}
	a, err := v.service().Explain(ctx, wire.Explain(r))
	return answered(a, err, wire.ExplanationOf)
}

// few is an error if there are more headers than a request may have.
func few(field string, n int) error {
	if n > api.MaxHeaders {
		return headgate.Invalid(field, "are more than %d", api.MaxHeaders)
	}
	return nil
}

// Observe implements pb.HeadgateServiceServer.
func (v *verbs) Observe(ctx context.Context, r *pb.ObserveRequest) (*pb.ObserveResponse, error) {
	if err := few("headers", len(r.GetHeaders())); err != nil {
		return nil, err
	}
	a, err := v.service().Observe(ctx, wire.Observe(r))
	return answered(a, err, wire.ObservedOf)
}

// Reset implements pb.HeadgateServiceServer.
func (v *verbs) Reset(ctx context.Context, r *pb.ResetRequest) (*pb.ResetResponse, error) {
	a, err := v.service().Reset(ctx, wire.Reset(r))
	return answered(a, err, wire.ForgottenOf)
}

// Block implements pb.HeadgateServiceServer.
func (v *verbs) Block(ctx context.Context, r *pb.BlockRequest) (*pb.Status, error) {
	a, err := v.service().Block(ctx, wire.Block(r))
	return answered(a, err, wire.StatusOf)
}

// SetLimit implements pb.HeadgateServiceServer.
func (v *verbs) SetLimit(ctx context.Context, r *pb.SetLimitRequest) (*pb.ChangedResponse, error) {
	a, err := v.service().SetLimit(ctx, wire.SetLimit(r))
	return answered(a, err, wire.ChangedOf)
}

// SetOverride implements pb.HeadgateServiceServer.
func (v *verbs) SetOverride(ctx context.Context, r *pb.SetOverrideRequest) (*pb.ChangedResponse, error) {
	a, err := v.service().Override(ctx, wire.Override(r))
	return answered(a, err, wire.ChangedOf)
}

// SetPlan implements pb.HeadgateServiceServer.
func (v *verbs) SetPlan(ctx context.Context, r *pb.SetPlanRequest) (*pb.ChangedResponse, error) {
	a, err := v.service().SetPlan(ctx, wire.SetPlan(r))
	return answered(a, err, wire.ChangedOf)
}

// Rollback implements pb.HeadgateServiceServer.
func (v *verbs) Rollback(ctx context.Context, r *pb.RollbackRequest) (*pb.ChangedResponse, error) {
	if len(r.GetLimits()) > api.MaxRollback {
		return nil, headgate.Invalid("limits", "are more than %d", api.MaxRollback)
	}
	a, err := v.service().Rollback(ctx, wire.Rollback(r))
	return answered(a, err, wire.ChangedOf)
}
