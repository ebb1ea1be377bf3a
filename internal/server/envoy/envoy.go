// Package envoy serves Envoy's rate limit service, version 3. Its configurations have the format of
// envoyproxy/ratelimit, and come from files or an xDS server.
//
// The package only translates: it finds the limit of a descriptor, lets the service decide, and writes the figures of
// the decision into a status.
package envoy

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/rpc"
	"github.com/headgate/headgate/internal/server/service"
)

// Server answers Envoy. Create one with [New]. It is safe for concurrent use.
type Server struct {
	service *service.Service
	log     *slog.Logger
	headers Headers
	config  atomic.Pointer[Config]
}

// New returns a server without a configuration: each request is an error until [Server.Use]. It logs failures that the
// request did not cause.
func New(s *service.Service, log *slog.Logger, headers Headers) *Server {
	return &Server{service: s, log: log, headers: headers}
}

// Use puts a configuration into force. A request is decided by a single configuration.
func (s *Server) Use(c *Config) { s.config.Store(c) }

// Config returns the configuration in force; nil: there is none yet.
func (s *Server) Config() *Config { return s.config.Load() }

// Service returns the service for a gRPC server.
func (s *Server) Service() rpc.Service {
	return rpc.Service{Desc: &rls.RateLimitService_ServiceDesc, Impl: s, Objects: func(message any) int {
		q, _ := message.(*rls.RateLimitRequest)
		return max(1, len(q.GetDescriptors()))
	}}
}

// ShouldRateLimit implements envoy.service.ratelimit.v3.RateLimitService. Its errors have the codes of [rpc.Status]:
// InvalidArgument if the request is wrong, and nothing was charged; Unavailable if the store does not answer, so that
// Envoy decides by its failure_mode_deny.
func (s *Server) ShouldRateLimit(ctx context.Context, q *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer, p := s.decide(ctx, q)
	if p != nil {
		return nil, rpc.Status(p).Err()
	}
	return answer, nil
}

// decide charges a request, and returns the answer or a problem.
func (s *Server) decide(ctx context.Context, q *rls.RateLimitRequest) (*rls.RateLimitResponse, *api.Problem) {
	c := s.config.Load()
	if c == nil {
		return nil, &api.Problem{
			Type: api.Unavailable, Title: "No configuration was received yet",
			Status: http.StatusServiceUnavailable, Detail: "Nothing was charged.",
		}
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, service.Deadline)
		defer cancel()
	}
	p, err := c.prepare(q)
	if err == nil {
		err = p.execute(service.WithProtocol(ctx, service.ProtocolEnvoy), s.service)
	}
	if err == nil {
		return p.response(s.headers), nil
	}
	problem := service.ProblemOf(err)
	if problem.Status >= http.StatusInternalServerError {
		if ctx.Err() == nil {
			service.LogFailure(s.log, rls.RateLimitService_ShouldRateLimit_FullMethodName, err, 1)
		}
		if p.mixed {
			problem.Type, problem.Detail = api.OutcomeUnknown, "It is not known which descriptors were charged."
		}
	}
	return nil, problem
}

// preparedRequest has a task for each of a request's descriptors.
type preparedRequest struct {
	tasks        []task
	allOrNothing bool // tasks that take are one request
	mixed        bool // some descriptors were charged, or may have been, although there was an error
}

// prepare finds the limits of a request's descriptors. Errors are headgate.ErrInvalid.
func (c *Config) prepare(q *rls.RateLimitRequest) (*preparedRequest, error) {
	descriptors := q.GetDescriptors()
	switch {
	case q.GetDomain() == "":
		return nil, headgate.Invalid("domain", "is empty")
	case len(descriptors) == 0:
		return nil, headgate.Invalid("descriptors", "there is none")
	case len(descriptors) > api.MaxCharges:
		return nil, headgate.Invalid("descriptors", "are more than %d", api.MaxCharges)
	}
	p := &preparedRequest{tasks: make([]task, len(descriptors))}
	d := c.domains[q.GetDomain()]
	if d == nil { // a domain without limits
		return p, nil
	}
	p.allOrNothing = d.allOrNothing
	replaced := map[string]bool{}
	for i, descriptor := range descriptors {
		t := &p.tasks[i]
		if err := t.findRule(d, i, descriptor); err != nil {
			return nil, err
		}
		if t.rule == nil {
			continue
		}
		for _, name := range t.rule.replaces {
			replaced[name] = true
		}
		if err := t.setVerb(i, q.GetHitsAddend(), descriptor); err != nil {
			return nil, err
		}
	}
	for i := range p.tasks {
		if t := &p.tasks[i]; t.rule != nil && !t.rule.unlimited && t.rule.name != "" && replaced[t.rule.name] {
			*t = task{}
		}
	}
	return p, nil
}
