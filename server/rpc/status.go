package rpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/server/api"
)

// retryIn is when a server that has no room, or whose store is away, may be asked again: as Retry-After
// says it over HTTP.
const retryIn = time.Second

// Status is the status of a problem: the code of [api.Problem.Code], the problem itself in ErrorInfo,
// the field that is wrong in BadRequest, and RetryInfo where nothing was charged and it may pass later.
func Status(p *api.Problem) *status.Status {
	st := status.New(codes.Code(p.Code()), p.Text())
	info := &errdetails.ErrorInfo{Reason: p.Reason(), Domain: api.Domain, Metadata: p.Metadata()}
	details := []protoadapt.MessageV1{info}
	if p.Field != "" {
		details = append(details, &errdetails.BadRequest{
			FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: p.Field, Description: p.Detail}},
		})
	}
	if p.Type == api.Unavailable || p.Type == api.Busy {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(retryIn)})
	}
	with, err := st.WithDetails(details...)
	if err != nil { // a text that is not UTF-8 cannot be sent
		return st
	}
	return with
}

func statusOf(p *api.Problem) error { return Status(p).Err() }
