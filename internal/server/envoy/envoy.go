// Package envoy serves Envoy's rate limit service, version 3, by configurations in the format of
// envoyproxy/ratelimit: files, or what an xDS server sends.
//
// The package only translates. It finds the limit of a descriptor, asks the service for a decision, and
// writes the figures of that decision into a status.
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

// New returns a server without a configuration: each request is an error until [Server.Use]. It logs failures
// that the request is not to blame for.
func New(s *service.Service, log *slog.Logger, headers Headers) *Server {
	return &Server{service: s, log: log, headers: headers}
}

// Use puts a configuration into force. Each request is decided by one configuration.
func (s *Server) Use(c *Config) { s.config.Store(c) }

// Config returns the configuration in force; nil: there is none yet.
func (s *Server) Config() *Config { return s.config.Load() }

// Service returns what a server of gRPC registers.
func (s *Server) Service() rpc.Service {
	return rpc.Service{Desc: &rls.RateLimitService_ServiceDesc, Impl: s, Objects: func(message any) int {
		q, _ := message.(*rls.RateLimitRequest)
		return max(1, len(q.GetDescriptors()))
	}}
}

// ShouldRateLimit implements envoy.service.ratelimit.v3.RateLimitService. Its errors have a code of gRPC, as
// [rpc.Status] has it: InvalidArgument if the request is wrong, and nothing was charged; Unavailable if the store
// does not answer. Envoy decides by its failure_mode_deny then.
func (s *Server) ShouldRateLimit(ctx context.Context, q *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	answer, p := s.decide(ctx, q)
	if p != nil {
		return nil, rpc.Status(p).Err()
	}
	return answer, nil
}

// decide answers a request, or says what is wrong.
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
	p, err := c.plan(q)
	if err == nil {
		err = p.ask(service.By(ctx, service.ProtocolEnvoy), s.service)
	}
	if err == nil {
		return p.response(s.headers), nil
	}
	problem := service.Problem(err)
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

// plan has the charges for a request's descriptors.
type plan struct {
	tasks    []task
	together bool // all that is taken is taken as one request
	mixed    bool // some descriptors were charged, or may have been, although there was an error
}

// plan finds the limits of a request. Errors are headgate.ErrInvalid.
func (c *Config) plan(q *rls.RateLimitRequest) (*plan, error) {
	descriptors := q.GetDescriptors()
	switch {
	case q.GetDomain() == "":
		return nil, headgate.Invalid("domain", "is empty")
	case len(descriptors) == 0:
		return nil, headgate.Invalid("descriptors", "there is none")
	case len(descriptors) > api.MaxCharges:
		return nil, headgate.Invalid("descriptors", "are more than %d", api.MaxCharges)
	}
	p := &plan{tasks: make([]task, len(descriptors))}
	d := c.domains[q.GetDomain()]
	if d == nil { // nothing is limited there
		return p, nil
	}
	p.together = d.together
	replaced := map[string]bool{}
	for i, one := range descriptors {
		t := &p.tasks[i]
		if err := t.find(d, i, one); err != nil {
			return nil, err
		}
		if t.rule == nil {
			continue
		}
		for _, name := range t.rule.replaces {
			replaced[name] = true
		}
		if err := t.hit(i, q.GetHitsAddend(), one); err != nil {
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
