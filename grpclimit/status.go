package grpclimit

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/grpcstatus"
	"github.com/headgate/headgate/store"
)

// failure is an error that gRPC sends as a status, and whose cause errors.Is and errors.As find.
type failure struct {
	status     *status.Status
	cause      error
	namesCause bool // Error names the cause; the status, which may be sent to others, never does
}

// Error returns the text of the status, and of the cause if namesCause is set.
func (f *failure) Error() string {
	if f.namesCause {
		return f.status.Err().Error() + " " + f.cause.Error()
	}
	return f.status.Err().Error()
}

// GRPCStatus returns the status, for [status.FromError].
func (f *failure) GRPCStatus() *status.Status { return f.status }

func (f *failure) Unwrap() error { return f.cause }

// refusal returns the failure of a refused call or message; what is "the call" or "the message".
func refusal(what string, d *headgate.Decision, cause error) *failure {
	text := fmt.Sprintf("Quota exceeded: limit %s refuses %s, which has charged nothing. ", d.LimitName, what)
	details := []protoadapt.MessageV1{quotaFailure(d)}
	if d.RetryAfter != headgate.Never {
		text += fmt.Sprintf("It can pass in %d s.", max(1, httplimit.WholeSeconds(d.RetryAfter)))
		details = append(details, grpcstatus.Retry(d.RetryAfter))
	} else {
		text += "It can never pass: it costs more than the limit admits at once."
	}
	return &failure{status: grpcstatus.New(codes.ResourceExhausted, text, details...), cause: cause}
}

// quotaFailure returns a detail with a violation for each charge that refused. Its subject is the name of the limit,
// since a key may be a secret of the client's.
func quotaFailure(d *headgate.Decision) *errdetails.QuotaFailure {
	q := &errdetails.QuotaFailure{}
	add := func(limit string, remaining, capacity headgate.Cost) {
		q.Violations = append(q.Violations, &errdetails.QuotaFailure_Violation{
			Subject: limit, Description: fmt.Sprintf("%s of %s units remain.", remaining, capacity),
		})
	}
	for i := range d.Each {
		if charge := &d.Each[i]; !charge.Allowed {
			add(charge.LimitName, charge.RemainingCost(), charge.CapacityCost())
		}
	}
	if len(q.Violations) == 0 {
		add(d.LimitName, d.RemainingCost(), d.CapacityCost())
	}
	return q
}

// clientFailure returns the failure of a call that cannot be charged because of an error of the client's.
func clientFailure(err error) *failure {
	text := err.Error()
	var details []protoadapt.MessageV1
	if bad, ok := errors.AsType[*headgate.InvalidError](err); ok {
		details = append(details, grpcstatus.Field(bad.Field, bad.Problem))
	}
	st := grpcstatus.New(codes.InvalidArgument, text+". Nothing was charged.", details...)
	return &failure{status: st, cause: err}
}

// internalFailure returns the failure of a call that cannot be charged because of an error of the server's.
func internalFailure(err error) *failure {
	const text = "The limits of the call cannot be checked. Nothing was charged."
	return &failure{status: status.New(codes.Internal, text), cause: err}
}

// undecidedFailure returns the failure of a call about which the limiter did not decide. Its code is UNAVAILABLE, after
// which clients of gRPC send the call again, only if nothing was charged.
func undecidedFailure(ctx context.Context, err error) *failure {
	nothingCharged := store.NothingDone(err)
	outcome := "It is not known whether anything was charged."
	if nothingCharged {
		outcome = "Nothing was charged."
	}
	const text = "Limits cannot be checked at the moment. "
	switch end := ctx.Err(); {
	case end != nil:
		code := status.FromContextError(end).Code()
		return &failure{status: status.New(code, "The call ended before its limits were checked. "+outcome), cause: err}
	case nothingCharged:
		st := grpcstatus.New(codes.Unavailable, text+outcome, grpcstatus.Retry(grpcstatus.RetryIn))
		return &failure{status: st, cause: err}
	}
	return &failure{status: status.New(codes.Unknown, text+outcome), cause: err}
}
