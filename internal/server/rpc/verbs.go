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
	case *pb.StreamRequest: // one of them is not nil
		return objects(m.GetTake()) + objects(m.GetCheck()) + objects(m.GetBatch())
	case *pb.ListCellsRequest:
		return 2 * int(min(m.GetMax(), maxCells)) // a cell takes more than a charge
	case *pb.InspectRequest:
		return 1 + int(min(max(m.GetAttempts(), 0), api.MaxAttempts))/10 // ten attempts take less than a charge
	case *pb.UsageRequest:
		return 2 * max(len(m.GetLimits()), store.DefaultMax)
	}
	return 1
}

// ask asks a verb of the service what a message asks, and returns a message with its answer.
func ask[Answer, Question, In, Out any](ctx context.Context, r *Question, verb func(context.Context, *In) (*Out, error)) (
	*Answer, error,
) {
	out, err := verb(ctx, wire.From[In](r))
	if err != nil {
		return nil, err
	}
	return wire.To[Answer](out), nil
}

func (v *verbs) service() *service.Service { return v.of.service }

// unheld holds nothing: what an answer takes was held for by objects.
func unheld(int) error { return nil }

// Take implements pb.HeadgateServiceServer.
func (v *verbs) Take(ctx context.Context, r *pb.Request) (*pb.Decision, error) {
	return ask[pb.Decision](ctx, r, v.service().Take)
}

// Check implements pb.HeadgateServiceServer.
func (v *verbs) Check(ctx context.Context, r *pb.Request) (*pb.Decision, error) {
	return ask[pb.Decision](ctx, r, v.service().Check)
}

// FillUp implements pb.HeadgateServiceServer.
func (v *verbs) FillUp(ctx context.Context, r *pb.Request) (*pb.FillUpResponse, error) {
	return ask[pb.FillUpResponse](ctx, r, v.service().FillUp)
}

// Batch implements pb.HeadgateServiceServer.
func (v *verbs) Batch(ctx context.Context, r *pb.BatchRequest) (*pb.BatchResponse, error) {
	return ask[pb.BatchResponse](ctx, r, func(ctx context.Context, b *api.Batch) (*api.Answers, error) {
		return v.service().Batch(ctx, b, func(err error) {
			if ctx.Err() == nil {
				v.of.logFailure(pb.HeadgateService_Batch_FullMethodName, err)
			}
		})
	})
}

// Reserve implements pb.HeadgateServiceServer.
func (v *verbs) Reserve(ctx context.Context, r *pb.ReserveRequest) (*pb.ReserveResponse, error) {
	return ask[pb.ReserveResponse](ctx, r, v.service().Reserve)
}

// Extend implements pb.HeadgateServiceServer.
func (v *verbs) Extend(ctx context.Context, r *pb.Request) (*pb.ExtendResponse, error) {
	return ask[pb.ExtendResponse](ctx, r, v.service().Extend)
}

// Settle implements pb.HeadgateServiceServer.
func (v *verbs) Settle(ctx context.Context, r *pb.SettleRequest) (*pb.SettleResponse, error) {
	return ask[pb.SettleResponse](ctx, r, v.service().Settle)
}

// Cancel implements pb.HeadgateServiceServer.
func (v *verbs) Cancel(ctx context.Context, r *pb.SettleRequest) (*pb.SettleResponse, error) {
	return ask[pb.SettleResponse](ctx, r, v.service().Cancel)
}

// Acquire implements pb.HeadgateServiceServer.
func (v *verbs) Acquire(ctx context.Context, r *pb.Request) (*pb.AcquireResponse, error) {
	return ask[pb.AcquireResponse](ctx, r, v.service().Acquire)
}

// Renew implements pb.HeadgateServiceServer.
func (v *verbs) Renew(ctx context.Context, r *pb.LeasesRequest) (*pb.LeasesResponse, error) {
	return ask[pb.LeasesResponse](ctx, r, v.service().Renew)
}

// Release implements pb.HeadgateServiceServer.
func (v *verbs) Release(ctx context.Context, r *pb.LeasesRequest) (*pb.LeasesResponse, error) {
	return ask[pb.LeasesResponse](ctx, r, v.service().Release)
}

// Inspect implements pb.HeadgateServiceServer.
func (v *verbs) Inspect(ctx context.Context, r *pb.InspectRequest) (*pb.Status, error) {
	return ask[pb.Status](ctx, r, func(ctx context.Context, r *api.InspectRequest) (*api.Status, error) {
		return v.service().Inspect(ctx, r, unheld)
	})
}

// Usage implements pb.HeadgateServiceServer.
func (v *verbs) Usage(ctx context.Context, r *pb.UsageRequest) (*pb.UsageResponse, error) {
	if err := (law.Cell{Key: r.GetKey()}).ValidText(); err != nil {
		return nil, err
	}
	return ask[pb.UsageResponse](ctx, r, func(ctx context.Context, q *api.UsageQuery) (*api.Usage, error) {
		return v.service().Usage(ctx, q, unheld)
	})
}

// ListLimits implements pb.HeadgateServiceServer.
func (v *verbs) ListLimits(ctx context.Context, r *pb.ListLimitsRequest) (*pb.ListLimitsResponse, error) {
	return ask[pb.ListLimitsResponse](ctx, r, func(ctx context.Context, _ *struct{}) (*api.Limits, error) {
		return v.service().Limits(ctx)
	})
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
	cells, err := v.service().Cells(ctx, r.GetLimit(), r.GetBlocked(), q)
	if err != nil {
		return nil, err
	}
	return wire.To[pb.ListCellsResponse](cells), nil
}

// Explain implements pb.HeadgateServiceServer.
func (v *verbs) Explain(ctx context.Context, r *pb.ExplainRequest) (*pb.ExplainResponse, error) {
	if err := few("headers", len(r.GetHeaders())); err != nil {
		return nil, err
	}
	return ask[pb.ExplainResponse](ctx, r, v.service().Explain)
}

// few is an error if a list has more texts than it may.
func few(field string, n int) error {
	if n > api.MaxTexts {
		return headgate.Invalid(field, "are more than %d", api.MaxTexts)
	}
	return nil
}

// Observe implements pb.HeadgateServiceServer.
func (v *verbs) Observe(ctx context.Context, r *pb.ObserveRequest) (*pb.ObserveResponse, error) {
	if err := few("headers", len(r.GetHeaders())); err != nil {
		return nil, err
	}
	return ask[pb.ObserveResponse](ctx, r, v.service().Observe)
}

// Reset implements pb.HeadgateServiceServer.
func (v *verbs) Reset(ctx context.Context, r *pb.ResetRequest) (*pb.ResetResponse, error) {
	return ask[pb.ResetResponse](ctx, r, v.service().Reset)
}

// Block implements pb.HeadgateServiceServer.
func (v *verbs) Block(ctx context.Context, r *pb.BlockRequest) (*pb.Status, error) {
	return ask[pb.Status](ctx, r, v.service().Block)
}

// SetLimit implements pb.HeadgateServiceServer.
func (v *verbs) SetLimit(ctx context.Context, r *pb.SetLimitRequest) (*pb.ChangedResponse, error) {
	return ask[pb.ChangedResponse](ctx, r, v.service().SetLimit)
}

// SetOverride implements pb.HeadgateServiceServer.
func (v *verbs) SetOverride(ctx context.Context, r *pb.SetOverrideRequest) (*pb.ChangedResponse, error) {
	return ask[pb.ChangedResponse](ctx, r, v.service().Override)
}

// SetPlan implements pb.HeadgateServiceServer.
func (v *verbs) SetPlan(ctx context.Context, r *pb.SetPlanRequest) (*pb.ChangedResponse, error) {
	return ask[pb.ChangedResponse](ctx, r, v.service().SetPlan)
}

// Rollback implements pb.HeadgateServiceServer.
func (v *verbs) Rollback(ctx context.Context, r *pb.RollbackRequest) (*pb.ChangedResponse, error) {
	if err := few("limits", len(r.GetLimits())); err != nil {
		return nil, err
	}
	return ask[pb.ChangedResponse](ctx, r, v.service().Rollback)
}
