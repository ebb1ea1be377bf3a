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
	call := incomingCall(ctx, info.FullMethod)
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
	call := incomingCall(stream.Context(), info.FullMethod)
	if s.skips(call) {
		return handler(impl, stream)
	}
	fields, failed := s.admit(call, s.startCharges, "the call")
	if failed != nil {
		stream.SetTrailer(fields)
		return failed
	}
	_ = stream.SetHeader(fields) // fails only if the stream has ended
	if len(s.messageCharges) == 0 {
		return handler(impl, stream)
	}
	charged := &chargedStream{ServerStream: stream, server: s, call: call}
	err := handler(impl, charged)
	if failed := charged.failed.Load(); failed != nil && err == nil {
		return failed // or the client would not learn that a message was dropped
	}
	return err
}

// chargedStream charges for each received message. After a message that was not admitted, it receives no other.
type chargedStream struct {
	grpc.ServerStream
	server *Server
	call   *Call
	failed atomic.Pointer[failure]
}

func (c *chargedStream) RecvMsg(m any) error {
	if failed := c.failed.Load(); failed != nil {
		return failed
	}
	if err := c.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	call := *c.call
	call.Message = m
	fields, failed := c.server.admit(&call, c.server.messageCharges, "the message")
	if failed == nil {
		return nil
	}
	c.SetTrailer(fields)
	c.failed.Store(failed)
	return failed
}

func incomingCall(ctx context.Context, method string) *Call {
	md, _ := metadata.FromIncomingContext(ctx)
	return &Call{Context: ctx, Method: method, Metadata: md}
}

func (s *Server) skips(call *Call) bool { return s.cfg.Skip != nil && s.cfg.Skip(call) }

// admit charges a call or a message. If it returns a failure, fields are for the trailer, else for the header.
func (s *Server) admit(call *Call, configured []Charge, what string) (fields metadata.MD, failed *failure) {
	charges, err := s.readCharges(call, configured)
	switch {
	case err != nil:
		return nil, s.cannotCharge(call, err)
	case len(charges) == 0:
		return nil, nil
	}
	decide := s.limiter.Take
	if s.cfg.Mode == httplimit.Advise {
		decide = s.limiter.Check
	}
	d, err := decide(call.Context, charges...)
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

func (s *Server) readCharges(call *Call, configured []Charge) ([]headgate.Charge, error) {
	charges := make([]headgate.Charge, 0, len(configured))
	for i := range configured {
		c := &configured[i]
		if !selectsMethod(c.Methods, call.Method) {
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

// keyAndCost returns the key and the cost of a call. The key is empty if the cost is headgate.Units(0).
func keyAndCost(call *Call, keyFunc KeyFunc, costFunc CostFunc) (key string, cost headgate.Cost, err error) {
	if costFunc != nil {
		if cost, err = costFunc(call); err != nil || cost == headgate.Units(0) {
			return "", cost, err
		}
	}
	key, err = keyFunc(call)
	return httpkey.Join(key), cost, err
}

// fields returns the metadata of a decision: the headers of package httplimit with names in lower case.
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

// cannotCharge handles an error of a KeyFunc, CostFunc or LimitFor. It returns nil if the call is served nevertheless.
func (s *Server) cannotCharge(call *Call, err error) *failure {
	switch {
	case s.cfg.Mode != httplimit.Enforce:
		s.reportError(call, err)
		return nil
	case httpkey.IsClientError(err):
		return clientFailure(err)
	}
	s.reportError(call, err)
	return internalFailure(err)
}

// notDecided handles an error of the limiter. It returns nil if the call is served nevertheless.
func (s *Server) notDecided(call *Call, err error) *failure {
	invalidErr, isInvalid := errors.AsType[*headgate.InvalidError](err)
	switch {
	case s.cfg.Mode == httplimit.Enforce && isInvalid && invalidErr.Field == "cost":
		return clientFailure(err)
	case s.cfg.Mode == httplimit.Enforce && call.Context.Err() != nil:
		// The call is refused even with FailOpen, or leaving early would be a way past the limit.
		return undecidedFailure(call.Context, err)
	}
	s.reportError(call, err)
	switch {
	case s.cfg.Mode != httplimit.Enforce:
		return nil
	case errors.Is(err, headgate.ErrInvalid), errors.Is(err, headgate.ErrUnsupported):
		return internalFailure(err)
	case s.cfg.FailOpen:
		return nil
	}
	return undecidedFailure(call.Context, err)
}

// report passes a decision to OnDecision, or logs a refusal that is not enforced.
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

// reportError passes an error to OnError, or logs it.
func (s *Server) reportError(call *Call, err error) {
	if s.cfg.OnError != nil {
		s.cfg.OnError(call, err)
		return
	}
	s.logger.LogAttrs(call.Context, slog.LevelError, "grpclimit: no decision", slog.String("method", call.Method),
		slog.Any("error", err))
}
