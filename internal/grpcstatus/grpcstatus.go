// Package grpcstatus makes the statuses by which gRPC reports errors, for the server and for the interceptors.
package grpcstatus

import (
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// RetryIn is when a server that has no room, or whose store is away, may be asked again: as Retry-After
// says it over HTTP.
const RetryIn = time.Second

// New returns a status with details; without them if a text in them is not UTF-8, which cannot be sent.
func New(code codes.Code, text string, details ...protoadapt.MessageV1) *status.Status {
	st := status.New(code, text)
	with, err := st.WithDetails(details...)
	if err != nil {
		return st
	}
	return with
}

// Retry returns the detail that says after how long a call may be sent again.
func Retry(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

// Pushback returns the trailer by which clients with a retry policy learn when to send a call again, in milliseconds or
// -1 for never: none of them reads RetryInfo.
func Pushback(millis int64) metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(millis, 10))
}

// PushbackOf returns the trailer of a status with a RetryInfo; nil if it has none.
func PushbackOf(st *status.Status) metadata.MD {
	if after := RetryDelay(st); after > 0 {
		return Pushback(after.Milliseconds()) // RetryIn, which is of whole ones
	}
	return nil
}

// Field returns the detail that says which field of a request is wrong, and why.
func Field(name, problem string) *errdetails.BadRequest {
	return &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: name, Description: problem}},
	}
}

// RetryDelay returns after how long a call may be sent again, as a status says it; 0 if it does not.
func RetryDelay(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}
