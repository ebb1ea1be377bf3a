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
	status *status.Status
	cause  error
	named  bool // Error names the cause; the status, which may be sent to others, never does
}

// Error returns the text that the error of the status has.
func (f *failure) Error() string {
	if f.named {
		return f.status.Err().Error() + " " + f.cause.Error()
	}
	return f.status.Err().Error()
}

// GRPCStatus serves package status.
func (f *failure) GRPCStatus() *status.Status { return f.status }

func (f *failure) Unwrap() error { return f.cause }

// refusal returns the error of what was refused, which is "the call" or "the message".
func refusal(what string, d *headgate.Decision, cause error) *failure {
	text := fmt.Sprintf("Quota exceeded: limit %s refuses %s, which has charged nothing. ", d.LimitName, what)
	details := []protoadapt.MessageV1{quota(d)}
	if d.RetryAfter != headgate.Never {
		text += fmt.Sprintf("It can pass in %d s.", max(1, httplimit.WholeSeconds(d.RetryAfter)))
		details = append(details, grpcstatus.Retry(d.RetryAfter))
	} else {
		text += "It can never pass: it costs more than the limit admits at once."
	}
	return &failure{status: grpcstatus.New(codes.ResourceExhausted, text, details...), cause: cause}
}

// quota has a violation for each charge that was refused. Its subject is the name of the limit: a key may be a
// secret of the client's.
func quota(d *headgate.Decision) *errdetails.QuotaFailure {
	q := &errdetails.QuotaFailure{}
	add := func(limit string, remaining, capacity headgate.Cost) {
		q.Violations = append(q.Violations, &errdetails.QuotaFailure_Violation{
			Subject: limit, Description: fmt.Sprintf("%s of %s units remain.", remaining, capacity),
		})
	}
	for i := range d.Each {
		if f := &d.Each[i]; !f.Allowed {
			add(f.LimitName, f.RemainingCost(), f.CapacityCost())
		}
	}
	if len(q.Violations) == 0 {
		add(d.LimitName, d.RemainingCost(), d.CapacityCost())
	}
	return q
}

// wrong returns the error of a call that cannot be charged since the client did something wrong.
func wrong(err error) *failure {
	text := err.Error()
	var details []protoadapt.MessageV1
	if bad, ok := errors.AsType[*headgate.InvalidError](err); ok {
		details = append(details, grpcstatus.Field(bad.Field, bad.Problem))
	}
	st := grpcstatus.New(codes.InvalidArgument, text+". Nothing was charged.", details...)
	return &failure{status: st, cause: err}
}

// internal returns the error of a call that cannot be charged since the program does something wrong.
func internal(err error) *failure {
	const text = "The limits of the call cannot be checked. Nothing was charged."
	return &failure{status: status.New(codes.Internal, text), cause: err}
}

// undecided returns the error of a call about which the limiter did not decide. UNAVAILABLE says that nothing was
// charged: clients of gRPC send again after it.
func undecided(ctx context.Context, err error) *failure {
	known := store.NothingDone(err)
	charged := "It is not known whether anything was charged."
	if known {
		charged = "Nothing was charged."
	}
	const now = "Limits cannot be checked at the moment. "
	switch end := ctx.Err(); {
	case end != nil:
		code := status.FromContextError(end).Code()
		return &failure{status: status.New(code, "The call ended before its limits were checked. "+charged), cause: err}
	case known:
		st := grpcstatus.New(codes.Unavailable, now+charged, grpcstatus.Retry(grpcstatus.RetryIn))
		return &failure{status: st, cause: err}
	}
	return &failure{status: status.New(codes.Unknown, now+charged), cause: err}
}
