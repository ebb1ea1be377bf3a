package rpc

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate/internal/grpcstatus"
	"github.com/headgate/headgate/internal/server/api"
)

// Status is the status of a problem: the code of [api.Problem.Code], the problem itself in ErrorInfo,
// the field that is wrong in BadRequest, and RetryInfo where nothing was charged and it may pass later.
func Status(p *api.Problem) *status.Status {
	details := []protoadapt.MessageV1{
		&errdetails.ErrorInfo{Reason: p.Reason(), Domain: api.Domain, Metadata: p.Metadata()},
	}
	if p.Field != "" {
		details = append(details, grpcstatus.Field(p.Field, p.Detail))
	}
	if p.Type == api.Unavailable || p.Type == api.Busy {
		details = append(details, grpcstatus.Retry(grpcstatus.RetryIn))
	}
	return grpcstatus.New(codes.Code(p.Code()), p.Text(), details...)
}

func statusOf(p *api.Problem) error { return Status(p).Err() }
