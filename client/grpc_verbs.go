package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

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
	"POST /v1/take":     unary(pb.HeadgateService_Take_FullMethodName, wire.RequestOf, wire.Decision),
	"POST /v1/check":    unary(pb.HeadgateService_Check_FullMethodName, wire.RequestOf, wire.Decision),
	"POST /v1/fill-up":  unary(pb.HeadgateService_FillUp_FullMethodName, wire.RequestOf, wire.Filled),
	"POST /v1/batch":    unary(pb.HeadgateService_Batch_FullMethodName, wire.BatchOf, wire.Answers),
	"POST /v1/reserve":  unary(pb.HeadgateService_Reserve_FullMethodName, wire.ReserveOf, wire.Reserved),
	"POST /v1/extend":   unary(pb.HeadgateService_Extend_FullMethodName, wire.RequestOf, wire.Extended),
	"POST /v1/settle":   unary(pb.HeadgateService_Settle_FullMethodName, wire.SettleOf, wire.Settled),
	"POST /v1/cancel":   unary(pb.HeadgateService_Cancel_FullMethodName, wire.SettleOf, wire.Settled),
	"POST /v1/acquire":  unary(pb.HeadgateService_Acquire_FullMethodName, wire.RequestOf, wire.Acquired),
	"POST /v1/renew":    unary(pb.HeadgateService_Renew_FullMethodName, wire.LeasesOf, wire.Lost),
	"POST /v1/release":  unary(pb.HeadgateService_Release_FullMethodName, wire.LeasesOf, wire.Lost),
	"POST /v1/inspect":  unary(pb.HeadgateService_Inspect_FullMethodName, wire.InspectOf, wire.Status),
	"POST /v1/explain":  unary(pb.HeadgateService_Explain_FullMethodName, wire.ExplainOf, wire.Explanation),
	"POST /v1/reset":    unary(pb.HeadgateService_Reset_FullMethodName, wire.ResetOf, wire.Forgotten),
	"POST /v1/block":    unary(pb.HeadgateService_Block_FullMethodName, wire.BlockOf, wire.Status),
	"POST /v1/observe":  unary(pb.HeadgateService_Observe_FullMethodName, wire.ObserveOf, wire.Observed),
	"POST /v1/limit":    unary(pb.HeadgateService_SetLimit_FullMethodName, wire.SetLimitOf, wire.Changed),
	"POST /v1/override": unary(pb.HeadgateService_SetOverride_FullMethodName, wire.OverrideOf, wire.Changed),
	"POST /v1/plan":     unary(pb.HeadgateService_SetPlan_FullMethodName, wire.SetPlanOf, wire.Changed),
	"POST /v1/rollback": unary(pb.HeadgateService_Rollback_FullMethodName, wire.RollbackOf, wire.Changed),
	"GET /v1/usage":     unary(pb.HeadgateService_Usage_FullMethodName, wire.UsageQueryOf, wire.Usage),
	"GET /v1/cells":     unary(pb.HeadgateService_ListCells_FullMethodName, wire.CellsQueryOf, wire.Cells),
	"GET /v1/limits": unary(pb.HeadgateService_ListLimits_FullMethodName,
		func(*struct{}) *pb.ListLimitsRequest { return &pb.ListLimitsRequest{} }, wire.Limits),
}

// message is a message of type M.
type message[M any] interface {
	*M
	proto.Message
}

// unary returns the verb of a method: question makes its message, and answer reads that of the server.
func unary[In, Out, A any, Question proto.Message, Answer message[A]](
	name string, question func(*In) Question, answer func(Answer) *Out,
) verb {
	return func(ctx context.Context, t *rpcTransport, in, out any) error {
		typed, err := as[In](in)
		if err != nil {
			return err
		}
		told := Answer(new(A))
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
	if reader, ok := any(out).(interface{ ReadJSON(data []byte) error }); ok {
		err = reader.ReadJSON(text)
	} else {
		err = json.Unmarshal(text, out)
	}
	if wrong, ok := errors.AsType[*api.ReadError](err); ok {
		return nil, headgate.Invalid(wrong.Field, "%s", wrong.Detail)
	}
	if err != nil {
		return nil, headgate.Invalid("body", "%v", err)
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
