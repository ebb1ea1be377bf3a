package grpclimit

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/grpcstatus"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/lograte"
)

// Unary implements [grpc.UnaryServerInterceptor].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (
	any, error,
) {
	call := incoming(ctx, info.FullMethod)
	call.Message = req
	if s.skips(call) {
		return handler(ctx, req)
	}
	fields, failed := s.admit(call, s.cfg.Charges, "the call")
	if failed != nil {
		_ = grpc.SetTrailer(ctx, fields) // fails only if the call has no connection
		return nil, failed
	}
	_ = grpc.SetHeader(ctx, fields)
	return handler(ctx, req)
}

// Stream implements [grpc.StreamServerInterceptor].
func (s *Server) Stream(impl any, stream grpc.ServerStream, info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	call := incoming(stream.Context(), info.FullMethod)
	if s.skips(call) {
		return handler(impl, stream)
	}
	fields, failed := s.admit(call, s.start, "the call")
	if failed != nil {
		stream.SetTrailer(fields)
		return failed
	}
	_ = stream.SetHeader(fields) // which fails if the stream has ended
	if len(s.message) == 0 {
		return handler(impl, stream)
	}
	charged := &chargedStream{ServerStream: stream, server: s, call: call}
	err := handler(impl, charged)
	if failed := charged.failed.Load(); failed != nil && err == nil {
		return failed // the client would not learn that a message was dropped
	}
	return err
}

// chargedStream is a stream that is charged for each message. When one was not admitted, no other is received.
type chargedStream struct {
	grpc.ServerStream
	server *Server
	call   *Call
	failed atomic.Pointer[failure]
}

// RecvMsg implements [grpc.ServerStream].
func (c *chargedStream) RecvMsg(m any) error {
	if failed := c.failed.Load(); failed != nil {
		return failed
	}
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	call := *c.call
	call.Message = m
	fields, failed := c.server.admit(&call, c.server.message, "the message")
	if failed == nil {
		return nil
	}
	c.SetTrailer(fields)
	c.failed.Store(failed)
	return failed
}

// incoming returns the call of a context.
func incoming(ctx context.Context, method string) *Call {
	sent, _ := metadata.FromIncomingContext(ctx)
	return &Call{Context: ctx, Method: method, Metadata: sent}
}

func (s *Server) skips(call *Call) bool { return s.cfg.Skip != nil && s.cfg.Skip(call) }

// admit decides about a call or a message. If it fails that, fields are for the trailer, else for the header.
func (s *Server) admit(call *Call, from []Charge, what string) (fields metadata.MD, failed *failure) {
	charges, err := s.read(call, from)
	switch {
	case err != nil:
		return nil, s.cannotCharge(call, err)
	case len(charges) == 0:
		return nil, nil
	}
	ask := s.limiter.Take
	if s.cfg.Mode == httplimit.Advise {
		ask = s.limiter.Check
	}
	d, err := ask(call.Context, charges...)
	if err != nil {
		if failed = s.notDecided(call, err); failed != nil {
			fields = grpcstatus.PushbackOf(failed.status)
		}
		return fields, failed
	}
	s.report(call, &d)
	if s.cfg.Mode == httplimit.Shadow {
		return nil, nil
	}
	fields = s.fields(&d, charges)
	if d.Allowed || s.cfg.Mode == httplimit.Advise {
		return fields, nil
	}
	return fields, refusal(what, &d, &headgate.DeniedError{Decision: d})
}

// read returns what a call is charged.
func (s *Server) read(call *Call, from []Charge) ([]headgate.Charge, error) {
	charges := make([]headgate.Charge, 0, len(from))
	for i := range from {
		c := &from[i]
		if !selected(c.Methods, call.Method) {
			continue
		}
		charge := headgate.Charge{Limit: c.Limit, Keep: c.Keep}
		var err error
		if c.LimitFor != nil {
			if charge.Limit, err = c.LimitFor(call); err != nil {
				return nil, err
			}
			if charge.Limit.IsZero() {
				continue
			}
		}
		if charge.Key, charge.Cost, err = keyAndCost(call, c.Key, c.Cost); err != nil {
			return nil, err
		}
		if charge.Cost != headgate.Units(0) {
			charges = append(charges, charge)
		}
	}
	return charges, nil
}

// keyAndCost returns what a call is charged to, and how much. If that is nothing, no key is needed.
func keyAndCost(call *Call, by KeyFunc, of CostFunc) (key string, cost headgate.Cost, err error) {
	if of != nil {
		if cost, err = of(call); err != nil || cost == headgate.Units(0) {
			return "", cost, err
		}
	}
	key, err = by(call)
	return httpkey.Join(key), cost, err
}

// fields returns the metadata of a decision: the headers of package httplimit.
func (s *Server) fields(d *headgate.Decision, charges []headgate.Charge) metadata.MD {
	limits := make([]headgate.Limit, len(charges))
	for i := range charges {
		limits[i] = charges[i].Limit
	}
	h, md := http.Header{}, metadata.MD{}
	if !s.cfg.NoFields {
		httplimit.SetHeader(h, d, limits...)
	}
	if !d.Allowed && s.cfg.Mode == httplimit.Enforce { // advised calls are served now
		httplimit.SetRetryAfter(h, d, 0)
		md = grpcstatus.Pushback(httplimit.PushbackMillis(d, s.cfg.NoRetryBeyond))
	}
	for name, values := range h {
		md[strings.ToLower(name)] = values
	}
	return md
}

// cannotCharge returns the failure of a call whose key or cost cannot be had; nil if it is served.
func (s *Server) cannotCharge(call *Call, err error) *failure {
	switch {
	case s.cfg.Mode != httplimit.Enforce:
		s.reportError(call, err)
		return nil
	case httpkey.Clients(err):
		return wrong(err)
	}
	s.reportError(call, err)
	return internal(err)
}

// notDecided returns the failure of a call about which the limiter has not decided; nil if it is served.
func (s *Server) notDecided(call *Call, err error) *failure {
	invalid, ok := errors.AsType[*headgate.InvalidError](err)
	switch {
	case s.cfg.Mode == httplimit.Enforce && ok && invalid.Field == "cost":
		return wrong(err)
	case s.cfg.Mode == httplimit.Enforce && call.Context.Err() != nil:
		// It is refused even with FailOpen, else leaving early would be a way past the limit.
		return undecided(call.Context, err)
	}
	s.reportError(call, err)
	switch {
	case s.cfg.Mode != httplimit.Enforce:
		return nil
	case errors.Is(err, headgate.ErrInvalid), errors.Is(err, headgate.ErrUnsupported):
		return internal(err)
	case s.cfg.FailOpen:
		return nil
	}
	return undecided(call.Context, err)
}

// report passes a decision to the observer.
func (s *Server) report(call *Call, d *headgate.Decision) {
	switch {
	case s.cfg.OnDecision != nil:
		s.cfg.OnDecision(call, d)
	case s.cfg.Mode != httplimit.Enforce && !d.Allowed:
		s.logger.LogAttrs(call.Context, slog.LevelWarn, "grpclimit: a limit would refuse",
			slog.String(lograte.Class, d.LimitName), slog.String("limit", d.LimitName),
			slog.String("method", call.Method), slog.Duration("retry_after", d.RetryAfter))
	}
}

// reportError reports an error that is not the client's.
func (s *Server) reportError(call *Call, err error) {
	if s.cfg.OnError != nil {
		s.cfg.OnError(call, err)
		return
	}
	s.logger.LogAttrs(call.Context, slog.LevelError, "grpclimit: no decision", slog.String("method", call.Method),
		slog.Any("error", err))
}
