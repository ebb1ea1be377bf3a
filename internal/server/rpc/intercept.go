package rpc

import (
	"context"
	"fmt"
	"runtime/debug"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	"github.com/headgate/headgate/internal/grpcstatus"
	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/service"
)

// interceptUnary serves a call within the bounds of the load, if it needs a role, and turns its error into a status.
func (s *Server) interceptUnary(ctx context.Context, in any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (
	out any, err error,
) {
	s.arriving.messageArrived(ctx)
	m := s.methods[info.FullMethod]
	defer func() { err = s.statusFor(ctx, info.FullMethod, err, recover()) }()
	if m.role == auth.Anyone { // these are answered also under full load
		return h(ctx, in)
	}
	share := s.config.Load.Share()
	defer share.Release()
	if err := m.hold(&share, in); err != nil {
		return nil, err
	}
	return h(ctx, in) // admitCall has set the deadline
}

// hold counts a request, its message, and the memory to decide it in a share of the load.
func (m *method) hold(s *load.Share, message any) error {
	if err := s.Enter(); err != nil {
		return err
	}
	if p, ok := message.(proto.Message); ok {
		if n := proto.Size(p); n > load.FreeBytes {
			if err := s.Hold(int64(n)); err != nil {
				return err
			}
		}
	}
	if m.objects == nil {
		return nil
	}
	return s.HoldObjects(m.objects(message))
}

// interceptStream turns the error of a stream into a status, and ends the stream when the server stops, since a client
// of reflection may keep one open for as long as it lives. Headgate's own stream ends by itself, when it has answered
// all requests that it has read.
func (s *Server) interceptStream(
	impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler,
) (err error) {
	defer func() { err = s.statusFor(stream.Context(), info.FullMethod, err, recover()) }()
	stream = &firstMessage{ServerStream: stream, arriving: &s.arriving}
	if info.FullMethod != pb.HeadgateService_Stream_FullMethodName {
		stream = &stoppableStream{stream, s.stopping}
	}
	return h(impl, stream)
}

// firstMessage is a stream that reports to arriving when its first message is complete.
type firstMessage struct {
	grpc.ServerStream
	arriving *arrivingCalls
	complete bool
}

// RecvMsg implements grpc.ServerStream.
func (f *firstMessage) RecvMsg(m any) error {
	err := f.ServerStream.RecvMsg(m)
	if !f.complete {
		f.arriving.messageArrived(f.Context())
		f.complete = true
	}
	return err
}

// stoppableStream is a stream whose RecvMsg fails once its server stops.
type stoppableStream struct {
	grpc.ServerStream
	stopping <-chan struct{}
}

// RecvMsg implements grpc.ServerStream. Its goroutine ends with the stream.
func (e *stoppableStream) RecvMsg(m any) error {
	read := make(chan error, 1)
	go func() { read <- e.ServerStream.RecvMsg(m) }()
	select {
	case err := <-read:
		return err
	case <-e.stopping:
		return statusOf(stoppingProblem)
	}
}

// statusFor returns the status of an error. If the status says when to retry, it sets the pushback trailer.
func (s *Server) statusFor(ctx context.Context, name string, err error, panicked any) error {
	if _, ok := status.FromError(err); !ok || panicked != nil { // ok is true if err is nil
		err = statusOf(s.problem(ctx, name, err, panicked))
	}
	if pushback := grpcstatus.PushbackOf(status.Convert(err)); pushback != nil {
		_ = grpc.SetTrailer(ctx, pushback) // fails only if the call has no connection
	}
	return err
}

// problem returns the problem of an error, and logs one that is not the client's. A panic fails one call, as over HTTP.
func (s *Server) problem(ctx context.Context, name string, err error, panicked any) *api.Problem {
	if panicked != nil {
		err = fmt.Errorf("panic: %v", panicked)
		s.log.Error("request failed", "class", "panic", "path", name, "error", err, "stack", string(debug.Stack()))
		return service.ProblemOf(err)
	}
	p := service.ProblemOf(err)
	if p.Status >= 500 && ctx.Err() == nil {
		service.LogFailure(s.log, name, err, 1)
	}
	return p
}

// Status returns the status of a problem: the code of [api.Problem.Code], the problem itself in ErrorInfo, the wrong
// field in BadRequest, and a RetryInfo if nothing was charged and the call may pass later.
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
