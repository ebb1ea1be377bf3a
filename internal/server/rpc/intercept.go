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

// unary serves a call within the bounds of time and memory, and makes a status of its error.
func (s *Server) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (
	out any, err error,
) {
	s.arriving.arrived(ctx)
	m := s.methods[info.FullMethod]
	defer func() { err = s.status(ctx, info.FullMethod, err, recover()) }()
	if m.role == auth.Anyone { // answered however much there is to do
		return h(ctx, in)
	}
	share := s.config.Load.Share()
	defer share.Release()
	if err := m.hold(&share, in); err != nil {
		return nil, err
	}
	return h(ctx, in) // enter has set the deadline
}

// hold counts a message, and what it takes to decide it.
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

// stream makes a status of the error of a stream, and ends it when the server stops: a client of
// reflection may keep one open for as long as it lives. Headgate's own stream ends by itself, when it has
// answered what it has read.
func (s *Server) stream(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (
	err error,
) {
	defer func() { err = s.status(stream.Context(), info.FullMethod, err, recover()) }()
	stream = &firstMessage{ServerStream: stream, arriving: &s.arriving}
	if info.FullMethod != pb.HeadgateService_Stream_FullMethodName {
		stream = &ending{stream, s.stopping}
	}
	return h(impl, stream)
}

// firstMessage notes when the first message of a stream is complete.
type firstMessage struct {
	grpc.ServerStream
	arriving *arriving
	arrived  bool
}

// RecvMsg implements grpc.ServerStream.
func (f *firstMessage) RecvMsg(m any) error {
	err := f.ServerStream.RecvMsg(m)
	if !f.arrived {
		f.arriving.arrived(f.Context())
		f.arrived = true
	}
	return err
}

// ending is a stream that reads no message once its server stops.
type ending struct {
	grpc.ServerStream
	stopping <-chan struct{}
}

// RecvMsg implements grpc.ServerStream. What reads in the background ends with the stream.
func (e *ending) RecvMsg(m any) error {
	read := make(chan error, 1)
	go func() { read <- e.ServerStream.RecvMsg(m) }()
	select {
	case err := <-read:
		return err
	case <-e.stopping:
		return statusOf(stopped)
	}
}

// status returns the status of an error, a status as it is, and writes the trailer of one that says when to ask again.
func (s *Server) status(ctx context.Context, name string, err error, panicked any) error {
	if _, ok := status.FromError(err); !ok || panicked != nil { // it is ok of nil
		err = statusOf(s.problem(ctx, name, err, panicked))
	}
	if again := grpcstatus.PushbackOf(status.Convert(err)); again != nil {
		_ = grpc.SetTrailer(ctx, again) // fails only if the call has no connection
	}
	return err
}

// problem returns the problem of an error, which is logged if the client is not to blame. A panic is an
// error of one call, as it is over HTTP.
func (s *Server) problem(ctx context.Context, name string, err error, panicked any) *api.Problem {
	if panicked != nil {
		err = fmt.Errorf("panic: %v", panicked)
		s.log.Error("request failed", "class", "panic", "path", name, "error", err, "stack", string(debug.Stack()))
		return service.Problem(err)
	}
	p := service.Problem(err)
	if p.Status >= 500 && ctx.Err() == nil {
		service.LogFailure(s.log, name, err, 1)
	}
	return p
}

// Status returns the status of a problem: the code of [api.Problem.Code], the problem itself in ErrorInfo, the field
// that is wrong in BadRequest, and RetryInfo where nothing was charged and it may pass later.
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
