package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// Call makes one request outside of the batches, for paths without a method of Client, such as /v1/explain. in and out
// have types of package api, or types with the same JSON. A nil in sends no body; for GET, in is an [api.UsageQuery] or
// an [api.CellsQuery].
//
// Over gRPC the method and the path name the verb. For a path without a verb in gRPC, such as /v1/auth and /readyz, and
// for a path with a query, the error is headgate.ErrUnsupported.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	if c.closed.Load() {
		return errClosed
	}
	ctx, cancel := sched.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.transport.call(ctx, method, path, in, out)
}

// decideAlone takes or checks in a call of its own, outside of the batches.
func (c *Client) decideAlone(ctx context.Context, path string, in *api.Request, charges []headgate.Charge) (
	headgate.Decision, error,
) {
	var d api.Decision
	if err := c.Call(ctx, http.MethodPost, path, in, &d); err != nil {
		return headgate.Decision{}, err
	}
	return newDecision(&d, charges)
}

// sendBatch sends a batch, and gives each passenger its answer.
func (c *Client) sendBatch(_ context.Context, passengers []*flight.Passenger[struct{}, *part]) error {
	ctx, cancel := sched.WithTimeout(context.Background(), c.cfg.Timeout)
	defer cancel()
	in := api.Batch{Requests: make([]api.Request, len(passengers))}
	for i, p := range passengers {
		in.Requests[i] = p.Load.request
	}
	var answers api.Answers
	if err := c.transport.call(ctx, http.MethodPost, "/v1/batch", &in, &answers); err != nil {
		return err
	}
	if len(answers.Answers) != len(passengers) {
		return fmt.Errorf("server: %w: %d answers to %d requests", store.ErrUnknownOutcome, len(answers.Answers),
			len(passengers))
	}
	for _, a := range answers.Answers {
		if a.Decision == nil && (a.Problem == nil || a.Problem.Title == "") {
			return fmt.Errorf("server: %w: an answer of /v1/batch is neither a decision nor a problem",
				store.ErrUnknownOutcome)
		}
	}
	for i, p := range passengers {
		p.Load.answer = answers.Answers[i]
	}
	return nil
}

// problemClasses maps the type of a problem to the error that errors.Is finds in its error.
var problemClasses = map[string]error{
	api.OutcomeUnknown: store.ErrUnknownOutcome, api.Unavailable: store.ErrUnavailable, api.Busy: store.ErrBusy,
	api.Full: store.ErrFull, api.IDReused: headgate.ErrReused, api.IDSettled: headgate.ErrSettled,
	api.IDUnknown: headgate.ErrUnknownID,
}

// problemError returns a problem of the server as an error. errors.Is finds its class, such as store.ErrBusy.
func problemError(p *api.Problem) error {
	class := problemClasses[p.Type]
	switch {
	case class != nil:
	case p.Status == http.StatusBadRequest, p.Status == http.StatusRequestEntityTooLarge:
		return &problem{&headgate.InvalidError{Field: p.Field, Problem: strings.TrimPrefix(p.Detail, p.Field+": ")}, p}
	case p.Status == http.StatusRequestTimeout: // the server did not get the whole request
		class = store.ErrUnavailable
	case p.Status == http.StatusNotImplemented:
		class = headgate.ErrUnsupported
	case p.Status >= http.StatusInternalServerError:
		class = store.ErrUnknownOutcome // the request may have been charged
	default:
		class = store.ErrSetup
	}
	return &problem{class, p}
}

// problem is a problem of the server as an error, with the class that errors.Is finds.
type problem struct {
	class   error
	problem *api.Problem
}

func (e *problem) Error() string {
	if invalid, ok := errors.AsType[*headgate.InvalidError](e.class); ok {
		return invalid.Error()
	}
	return "server: " + e.problem.Text()
}

// Unwrap returns the class and the [api.Problem].
func (e *problem) Unwrap() []error { return []error{e.class, e.problem} }
