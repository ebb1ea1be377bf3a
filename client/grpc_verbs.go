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

// verb calls a method of gRPC, with and for types of package api.
type verb func(ctx context.Context, t *rpcTransport, in, out any) error

// verbs are the paths of the JSON interface that gRPC serves too.
var verbs = map[string]verb{
	"POST /v1/take":     unary[api.Request, pb.Request, pb.Decision, api.Decision]("Take"),
	"POST /v1/check":    unary[api.Request, pb.Request, pb.Decision, api.Decision]("Check"),
	"POST /v1/fill-up":  unary[api.Request, pb.Request, pb.FillUpResponse, api.Filled]("FillUp"),
	"POST /v1/batch":    unary[api.Batch, pb.BatchRequest, pb.BatchResponse, api.Answers]("Batch"),
	"POST /v1/reserve":  unary[api.Reserve, pb.ReserveRequest, pb.ReserveResponse, api.Reserved]("Reserve"),
	"POST /v1/debit":    unary[api.Request, pb.Request, pb.DebitResponse, api.Debited]("Debit"),
	"POST /v1/extend":   unary[api.Request, pb.Request, pb.ExtendResponse, api.Extended]("Extend"),
	"POST /v1/settle":   unary[api.Settle, pb.SettleRequest, pb.SettleResponse, api.Settled]("Settle"),
	"POST /v1/cancel":   unary[api.Settle, pb.SettleRequest, pb.SettleResponse, api.Settled]("Cancel"),
	"POST /v1/acquire":  unary[api.Request, pb.Request, pb.AcquireResponse, api.Acquired]("Acquire"),
	"POST /v1/renew":    unary[api.Leases, pb.LeasesRequest, pb.LeasesResponse, api.Lost]("Renew"),
	"POST /v1/release":  unary[api.Leases, pb.LeasesRequest, pb.LeasesResponse, api.Lost]("Release"),
	"POST /v1/inspect":  unary[api.InspectRequest, pb.InspectRequest, pb.Status, api.Status]("Inspect"),
	"POST /v1/explain":  unary[api.Explain, pb.ExplainRequest, pb.ExplainResponse, api.Explanation]("Explain"),
	"POST /v1/reset":    unary[api.ResetRequest, pb.ResetRequest, pb.ResetResponse, api.Reset]("Reset"),
	"POST /v1/refund":   unary[api.Refund, pb.RefundRequest, pb.RefundResponse, api.Refunded]("Refund"),
	"POST /v1/block":    unary[api.Block, pb.BlockRequest, pb.Status, api.Status]("Block"),
	"POST /v1/observe":  unary[api.Observe, pb.ObserveRequest, pb.ObserveResponse, api.Observed]("Observe"),
	"POST /v1/limit":    unary[api.SetLimit, pb.SetLimitRequest, pb.ChangedResponse, api.Changed]("SetLimit"),
	"POST /v1/override": unary[api.Override, pb.SetOverrideRequest, pb.ChangedResponse, api.Changed]("SetOverride"),
	"POST /v1/plan":     unary[api.SetPlan, pb.SetPlanRequest, pb.ChangedResponse, api.Changed]("SetPlan"),
	"POST /v1/rollback": unary[api.Rollback, pb.RollbackRequest, pb.ChangedResponse, api.Changed]("Rollback"),
	"GET /v1/usage":     unary[api.UsageQuery, pb.UsageRequest, pb.UsageResponse, api.Usage]("Usage"),
	"GET /v1/limits":    unary[struct{}, pb.ListLimitsRequest, pb.ListLimitsResponse, api.Limits]("ListLimits"),
	"GET /v1/cells":     newVerb("ListCells", cellsOf, wire.From[api.Cells, pb.ListCellsResponse]),
}

// cellsOf returns a query for keys as a message.
func cellsOf(q *api.CellsQuery) *pb.ListCellsRequest {
	return &pb.ListCellsRequest{
		Limit: q.Limit, Blocked: q.Blocked, Max: int64(q.Max),
		After: &pb.Subject{Limit: q.AfterLimit, Key: &q.AfterKey},
	}
}

// unary returns the verb of a method, whose messages have the same fields as types of package api.
func unary[In, Question, Answer, Out any](method string) verb {
	return newVerb(method, wire.To[Question, In], wire.From[Out, Answer])
}

// newVerb returns the verb of a method: question makes its message, and answer reads the server's.
func newVerb[In, Out, Question, Answer any](
	method string, question func(*In) *Question, answer func(*Answer) *Out,
) verb {
	name := "/" + pb.HeadgateService_ServiceDesc.ServiceName + "/" + method
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

// as returns a question as a type of package api. A value of another type is read as it would be from its JSON.
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
	if err := api.Read(text, out); err != nil {
		return nil, err
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
