package client

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/store"
)

// verb calls one method of gRPC. in and out have types of package api, or types with the same JSON.
type verb func(ctx context.Context, t *rpcTransport, in, out any) error

// verbs has the verb for each path of the JSON interface that gRPC serves too.
var verbs = map[string]verb{
	"POST /v1/take":     unaryVerb[api.Request, pb.Request, pb.Decision, api.Decision]("Take"),
	"POST /v1/check":    unaryVerb[api.Request, pb.Request, pb.Decision, api.Decision]("Check"),
	"POST /v1/fill-up":  unaryVerb[api.Request, pb.Request, pb.FillUpResponse, api.Filled]("FillUp"),
	"POST /v1/batch":    unaryVerb[api.Batch, pb.BatchRequest, pb.BatchResponse, api.Answers]("Batch"),
	"POST /v1/reserve":  unaryVerb[api.Reserve, pb.ReserveRequest, pb.ReserveResponse, api.Reserved]("Reserve"),
	"POST /v1/debit":    unaryVerb[api.Request, pb.Request, pb.DebitResponse, api.Debited]("Debit"),
	"POST /v1/extend":   unaryVerb[api.Request, pb.Request, pb.ExtendResponse, api.Extended]("Extend"),
	"POST /v1/settle":   unaryVerb[api.Settle, pb.SettleRequest, pb.SettleResponse, api.Settled]("Settle"),
	"POST /v1/cancel":   unaryVerb[api.Settle, pb.SettleRequest, pb.SettleResponse, api.Settled]("Cancel"),
	"POST /v1/acquire":  unaryVerb[api.Request, pb.Request, pb.AcquireResponse, api.Acquired]("Acquire"),
	"POST /v1/renew":    unaryVerb[api.Leases, pb.LeasesRequest, pb.LeasesResponse, api.Lost]("Renew"),
	"POST /v1/release":  unaryVerb[api.Leases, pb.LeasesRequest, pb.LeasesResponse, api.Lost]("Release"),
	"POST /v1/inspect":  unaryVerb[api.InspectRequest, pb.InspectRequest, pb.Status, api.Status]("Inspect"),
	"POST /v1/explain":  unaryVerb[api.Explain, pb.ExplainRequest, pb.ExplainResponse, api.Explanation]("Explain"),
	"POST /v1/reset":    unaryVerb[api.ResetRequest, pb.ResetRequest, pb.ResetResponse, api.Reset]("Reset"),
	"POST /v1/refund":   unaryVerb[api.Refund, pb.RefundRequest, pb.RefundResponse, api.Refunded]("Refund"),
	"POST /v1/block":    unaryVerb[api.Block, pb.BlockRequest, pb.Status, api.Status]("Block"),
	"POST /v1/observe":  unaryVerb[api.Observe, pb.ObserveRequest, pb.ObserveResponse, api.Observed]("Observe"),
	"POST /v1/limit":    unaryVerb[api.SetLimit, pb.SetLimitRequest, pb.ChangedResponse, api.Changed]("SetLimit"),
	"POST /v1/override": unaryVerb[api.Override, pb.SetOverrideRequest, pb.ChangedResponse, api.Changed]("SetOverride"),
	"POST /v1/plan":     unaryVerb[api.SetPlan, pb.SetPlanRequest, pb.ChangedResponse, api.Changed]("SetPlan"),
	"POST /v1/rollback": unaryVerb[api.Rollback, pb.RollbackRequest, pb.ChangedResponse, api.Changed]("Rollback"),
	"GET /v1/usage":     unaryVerb[api.UsageQuery, pb.UsageRequest, pb.UsageResponse, api.Usage]("Usage"),
	"GET /v1/limits":    unaryVerb[struct{}, pb.ListLimitsRequest, pb.ListLimitsResponse, api.Limits]("ListLimits"),
	"GET /v1/cells":     newVerb("ListCells", cellsRequest, wire.FromMessage[api.Cells, pb.ListCellsResponse]),
}

func cellsRequest(q *api.CellsQuery) *pb.ListCellsRequest {
	return &pb.ListCellsRequest{
		Limit: q.Limit, Blocked: q.Blocked, Max: int64(q.Max),
		After: &pb.Subject{Limit: q.AfterLimit, Key: &q.AfterKey},
	}
}

// unaryVerb returns the verb of a method whose messages have the same fields as types of package api.
func unaryVerb[In, Question, Answer, Out any](method string) verb {
	return newVerb(method, wire.ToMessage[Question, In], wire.FromMessage[Out, Answer])
}

// newVerb returns the verb of a method. encode makes the message of its request, and decode reads the response.
func newVerb[In, Out, Question, Answer any](
	method string, encode func(*In) *Question, decode func(*Answer) *Out,
) verb {
	name := "/" + pb.HeadgateService_ServiceDesc.ServiceName + "/" + method
	return func(ctx context.Context, t *rpcTransport, in, out any) error {
		typed, err := convertInput[In](in)
		if err != nil {
			return err
		}
		response := new(Answer)
		if err := t.invoke(ctx, name, encode(typed), response); err != nil {
			return err
		}
		if err := copyAnswer(decode(response), out); err != nil {
			return fmt.Errorf("server: %w: answer of %s: %w", store.ErrUnknownOutcome, name, err)
		}
		return nil
	}
}

// convertInput converts in to a type of package api. It converts values of other types by their JSON.
func convertInput[In any](in any) (*In, error) {
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
	return out, api.Read(text, out)
}

// copyAnswer copies an answer to out, which may have another type with the same JSON.
func copyAnswer[Out any](answer *Out, out any) error {
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
