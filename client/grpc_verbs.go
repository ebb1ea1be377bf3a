package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/store"
)

// verb asks a method of gRPC, with and for types of package api.
type verb func(ctx context.Context, t *rpcTransport, in, out any) error

// verbs are the paths of the JSON interface that gRPC serves too.
var verbs = map[string]verb{
	"POST /v1/take":     unary(pb.HeadgateService_Take_FullMethodName, wire.To[pb.Request, api.Request], wire.From[api.Decision, pb.Decision]),
	"POST /v1/check":    unary(pb.HeadgateService_Check_FullMethodName, wire.To[pb.Request, api.Request], wire.From[api.Decision, pb.Decision]),
	"POST /v1/fill-up":  unary(pb.HeadgateService_FillUp_FullMethodName, wire.To[pb.Request, api.Request], wire.From[api.Filled, pb.FillUpResponse]),
	"POST /v1/batch":    unary(pb.HeadgateService_Batch_FullMethodName, wire.To[pb.BatchRequest, api.Batch], wire.From[api.Answers, pb.BatchResponse]),
	"POST /v1/reserve":  unary(pb.HeadgateService_Reserve_FullMethodName, wire.To[pb.ReserveRequest, api.Reserve], wire.From[api.Reserved, pb.ReserveResponse]),
	"POST /v1/extend":   unary(pb.HeadgateService_Extend_FullMethodName, wire.To[pb.Request, api.Request], wire.From[api.Extended, pb.ExtendResponse]),
	"POST /v1/settle":   unary(pb.HeadgateService_Settle_FullMethodName, wire.To[pb.SettleRequest, api.Settle], wire.From[api.Settled, pb.SettleResponse]),
	"POST /v1/cancel":   unary(pb.HeadgateService_Cancel_FullMethodName, wire.To[pb.SettleRequest, api.Settle], wire.From[api.Settled, pb.SettleResponse]),
	"POST /v1/acquire":  unary(pb.HeadgateService_Acquire_FullMethodName, wire.To[pb.Request, api.Request], wire.From[api.Acquired, pb.AcquireResponse]),
	"POST /v1/renew":    unary(pb.HeadgateService_Renew_FullMethodName, wire.To[pb.LeasesRequest, api.Leases], wire.From[api.Lost, pb.LeasesResponse]),
	"POST /v1/release":  unary(pb.HeadgateService_Release_FullMethodName, wire.To[pb.LeasesRequest, api.Leases], wire.From[api.Lost, pb.LeasesResponse]),
	"POST /v1/inspect":  unary(pb.HeadgateService_Inspect_FullMethodName, wire.To[pb.InspectRequest, api.InspectRequest], wire.From[api.Status, pb.Status]),
	"POST /v1/explain":  unary(pb.HeadgateService_Explain_FullMethodName, wire.To[pb.ExplainRequest, api.Explain], wire.From[api.Explanation, pb.ExplainResponse]),
	"POST /v1/reset":    unary(pb.HeadgateService_Reset_FullMethodName, wire.To[pb.ResetRequest, api.ResetRequest], wire.From[api.Reset, pb.ResetResponse]),
	"POST /v1/block":    unary(pb.HeadgateService_Block_FullMethodName, wire.To[pb.BlockRequest, api.Block], wire.From[api.Status, pb.Status]),
	"POST /v1/observe":  unary(pb.HeadgateService_Observe_FullMethodName, wire.To[pb.ObserveRequest, api.Observe], wire.From[api.Observed, pb.ObserveResponse]),
	"POST /v1/limit":    unary(pb.HeadgateService_SetLimit_FullMethodName, wire.To[pb.SetLimitRequest, api.SetLimit], wire.From[api.Changed, pb.ChangedResponse]),
	"POST /v1/override": unary(pb.HeadgateService_SetOverride_FullMethodName, wire.To[pb.SetOverrideRequest, api.Override], wire.From[api.Changed, pb.ChangedResponse]),
	"POST /v1/plan":     unary(pb.HeadgateService_SetPlan_FullMethodName, wire.To[pb.SetPlanRequest, api.SetPlan], wire.From[api.Changed, pb.ChangedResponse]),
	"POST /v1/rollback": unary(pb.HeadgateService_Rollback_FullMethodName, wire.To[pb.RollbackRequest, api.Rollback], wire.From[api.Changed, pb.ChangedResponse]),
	"GET /v1/usage":     unary(pb.HeadgateService_Usage_FullMethodName, wire.To[pb.UsageRequest, api.UsageQuery], wire.From[api.Usage, pb.UsageResponse]),
	"GET /v1/limits":    unary(pb.HeadgateService_ListLimits_FullMethodName, wire.To[pb.ListLimitsRequest, struct{}], wire.From[api.Limits, pb.ListLimitsResponse]),
	"GET /v1/cells":     unary(pb.HeadgateService_ListCells_FullMethodName, cellsOf, wire.From[api.Cells, pb.ListCellsResponse]),
}

// cellsOf is a query for keys as a message.
func cellsOf(q *api.CellsQuery) *pb.ListCellsRequest {
	return &pb.ListCellsRequest{
		Limit: q.Limit, Blocked: q.Blocked, Max: int64(q.Max),
		After: &pb.Subject{Limit: q.AfterLimit, Key: &q.AfterKey},
	}
}

// unary returns the verb of a method: question makes its message, and answer reads that of the server.
func unary[In, Out, Question, Answer any](name string, question func(*In) *Question, answer func(*Answer) *Out) verb {
	return func(ctx context.Context, t *rpcTransport, in, out any) error {
		typed, err := as[In](in)
		if err != nil {
			return err
		}
		told := new(Answer)
		if err := t.invoke(ctx, name, question(typed), told); err != nil {
			return err
		}
		if err := put(answer(told), out); err != nil {
			return fmt.Errorf("server: %w: answer of %s: %w", store.ErrUnknownOutcome, name, err)
		}
		return nil
	}
}

// as returns what is asked as a type of package api. A value of another type is read as it would be from its JSON.
func as[In any](in any) (*In, error) {
	switch in := in.(type) {
	case nil:
		return new(In), nil
	case *In:
		return in, nil
	case In:
		return &in, nil
	}
	text, err := json.Marshal(in)
	if err != nil {
		return nil, headgate.Invalid("body", "%v", err)
	}
	out := new(In)
	var wrong *api.ReadError
	if errors.As(api.Read(text, out), &wrong) {
		return nil, headgate.Invalid(wrong.Field, "%s", wrong.Detail)
	}
	return out, nil
}

// put puts an answer into out, which may be of another type that has the same JSON.
func put[Out any](answer *Out, out any) error {
	if typed, ok := out.(*Out); ok {
		*typed = *answer
		return nil
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}
