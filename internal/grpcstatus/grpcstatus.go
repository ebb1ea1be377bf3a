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

// RetryIn is after how long a client may retry if the server has no room, or its store is away. It is the same as the
// Retry-After over HTTP.
const RetryIn = time.Second

// New returns a status with details, or without details if they have a text that is not UTF-8, which cannot be sent.
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

// Pushback returns the trailer that tells clients with a retry policy when to send a call again: after millis
// milliseconds, or never if millis is -1. These clients do not read RetryInfo.
func Pushback(millis int64) metadata.MD {
	return metadata.Pairs("grpc-retry-pushback-ms", strconv.FormatInt(millis, 10))
}

// PushbackOf returns the pushback trailer with the delay of a status's RetryInfo; nil if the status has none.
func PushbackOf(st *status.Status) metadata.MD {
	if after := RetryDelay(st); after > 0 {
		return Pushback(after.Milliseconds()) // exact: the delay is RetryIn, whole milliseconds
	}
	return nil
}

// Field returns the detail that says which field of a request is wrong, and why.
func Field(name, problem string) *errdetails.BadRequest {
	return &errdetails.BadRequest{
		FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: name, Description: problem}},
	}
}

// RetryDelay returns the delay in the RetryInfo of a status; 0 without a RetryInfo.
func RetryDelay(st *status.Status) time.Duration {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}
