// Package service answers requests, behind whatever door they come in.
package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/store"
)

// MaxBatch is how many charges one request or batch may carry.
const MaxBatch = 10_000

// Service answers requests by a limiter and a configuration. It is safe for
// concurrent use.
type Service struct {
	limiter *headgate.Limiter
	config  *config.Config
}

// New returns a service.
func New(l *headgate.Limiter, c *config.Config) *Service { return &Service{l, c} }

// Take takes the charges of a request, or asks about them with check.
func (s *Service) Take(ctx context.Context, r *api.Request, check bool) (*api.Decision, error) {
	if r.Check {
		return nil, Invalid("check", "stands only in the requests of a batch; ask /v1/check")
	}
	charges, err := s.charges(r)
	if err != nil {
		return nil, err
	}
	ask := s.limiter.Take
	if check {
		ask = s.limiter.Check
	}
	d, err := ask(ctx, charges...)
	if err != nil {
		return nil, err
	}
	return decision(d), nil
}

// Batch answers many requests; those that are wrong fail alone.
func (s *Service) Batch(ctx context.Context, b *api.Batch) (*api.Answers, error) {
	if len(b.Requests) == 0 {
		return nil, Invalid("requests", "there is none")
	}
	answers := &api.Answers{Answers: make([]api.Answer, len(b.Requests))}
	requests := make([]headgate.Request, 0, len(b.Requests))
	index := make([]int, 0, len(b.Requests))
	total := 0
	for i := range b.Requests {
		charges, err := s.charges(&b.Requests[i])
		if err != nil {
			answers.Answers[i].Problem = Problem(err)
			continue
		}
		if total += len(charges); total > MaxBatch {
			return nil, Invalid("requests", "carry more than %d charges", MaxBatch)
		}
		requests = append(requests, headgate.Request{Charges: charges, Check: b.Requests[i].Check})
		index = append(index, i)
	}
	got, err := s.limiter.Batch(ctx, requests)
	if err != nil {
		return nil, err
	}
	for k, a := range got {
		if a.Err != nil {
			answers.Answers[index[k]].Problem = Problem(a.Err)
		} else {
			answers.Answers[index[k]].Decision = decision(a.Decision)
		}
	}
	return answers, nil
}

// Inspect tells about one key.
func (s *Service) Inspect(ctx context.Context, r *api.Subject) (*api.Status, error) {
	limit, err := s.config.Resolve(r.Limit)
	if err != nil {
		return nil, err
	}
	st, err := s.limiter.Inspect(ctx, limit, r.Key)
	if err != nil {
		return nil, err
	}
	return status(st), nil
}

// Reset forgets one key.
func (s *Service) Reset(ctx context.Context, r *api.Subject) (*api.Reset, error) {
	limit, err := s.config.Resolve(r.Limit)
	if err != nil {
		return nil, err
	}
	existed, err := s.limiter.Reset(ctx, limit, r.Key)
	if err != nil {
		return nil, err
	}
	return &api.Reset{Existed: existed}, nil
}

// Block refuses one key for a while, or lifts that.
func (s *Service) Block(ctx context.Context, r *api.Block) (*api.Status, error) {
	limit, err := s.config.Resolve(r.Limit)
	if err != nil {
		return nil, err
	}
	d := time.Duration(0)
	if r.For != "0" {
		if d, err = headgate.ParsePeriod(r.For); err != nil {
			return nil, fmt.Errorf("for: %w", err)
		}
	}
	st, err := s.limiter.Block(ctx, limit, r.Key, d, r.Reason)
	if err != nil {
		return nil, err
	}
	return status(st), nil
}

// Cells lists keys of one limit, or of all if limit is empty, after a key.
func (s *Service) Cells(ctx context.Context, limit string, blocked bool, after store.Query) (*api.Cells, error) {
	q := after
	q.Blocked = blocked
	if limit != "" {
		l, err := s.config.Resolve(limit)
		if err != nil {
			return nil, err
		}
		q.Limit = l.Name()
	}
	list, err := s.limiter.List(ctx, q)
	if err != nil {
		return nil, err
	}
	cells := &api.Cells{Cells: make([]api.Status, len(list))}
	for i, st := range list {
		cells.Cells[i] = *status(st)
	}
	return cells, nil
}

// Limits lists the named limits.
func (s *Service) Limits() *api.Limits {
	list := &api.Limits{Limits: make([]api.Limit, len(s.config.Limits))}
	for i, l := range s.config.Limits {
		list.Limits[i] = api.Limit{Name: l.Name(), Limit: l.String(), Description: l.Description, Bound: l.Bound().String()}
	}
	return list
}

// probe is a limit that nothing is ever taken from.
var probe = headgate.MustParse("token-bucket 1/s")

// Healthy asks the store for something harmless.
func (s *Service) Healthy(ctx context.Context) error {
	_, err := s.limiter.Check(ctx, headgate.Charge{Limit: probe, Key: "healthz"})
	return err
}

// charges resolves what a request asks for.
func (s *Service) charges(r *api.Request) ([]headgate.Charge, error) {
	list := r.Charges
	switch {
	case len(list) == 0 && r.Limit == "":
		return nil, Invalid("limit", "is missing")
	case len(list) == 0:
		list = []api.Charge{r.Charge}
	case r.Charge != api.Charge{}:
		return nil, Invalid("charges", "stand beside limit, key or cost; say one or the other")
	case len(list) > MaxBatch:
		return nil, Invalid("charges", "are more than %d", MaxBatch)
	}
	charges := make([]headgate.Charge, len(list))
	for i, c := range list {
		limit, err := s.config.Resolve(c.Limit)
		if err != nil {
			return nil, err
		}
		charges[i] = headgate.Charge{Limit: limit, Key: c.Key}
		if c.Cost != "" {
			if charges[i].Cost, err = headgate.ParseCost(c.Cost.String()); err != nil {
				return nil, err
			}
		}
	}
	return charges, nil
}

func decision(d headgate.Decision) *api.Decision {
	out := &api.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		ResetAfterMS: millis(d.ResetAfter), At: d.At.UnixMicro(), Entry: d.Entry,
	}
	if d.RetryAfter != headgate.Never {
		ms := millis(d.RetryAfter)
		out.RetryAfterMS = &ms
	}
	return out
}

// millis rounds up.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

func status(s headgate.Status) *api.Status {
	out := &api.Status{
		Limit: s.Limit, Key: s.Key, Exists: s.Exists,
		Used: json.Number(s.Used.String()), At: s.At.UnixMicro(), Reason: s.Reason,
		EmptyAt: instant(s.EmptyAt), BlockedUntil: instant(s.BlockedUntil),
	}
	if !s.Capacity.IsZero() {
		out.Capacity = json.Number(s.Capacity.String())
	}
	if s.Remaining >= 0 {
		out.Remaining = &s.Remaining
	}
	for _, a := range s.History {
		out.History = append(out.History, api.Attempt{
			Number: a.Number, At: a.At.UnixMicro(), Cost: json.Number(a.Cost.String()), Allowed: a.Allowed,
		})
	}
	return out
}

func instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// Invalid returns a headgate.ErrInvalid about a field of a request.
func Invalid(field, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", headgate.ErrInvalid, field, fmt.Sprintf(format, args...))
}

// Problem describes an error to a client. Only what the client did wrong is
// told in full; what is wrong here is for the log.
func Problem(err error) *api.Problem {
	switch {
	case errors.Is(err, headgate.ErrInvalid):
		detail := strings.TrimPrefix(err.Error(), headgate.ErrInvalid.Error()+": ")
		return &api.Problem{Title: "Bad request", Status: http.StatusBadRequest, Detail: detail, Field: field(err)}
	case errors.Is(err, headgate.ErrUnsupported):
		return &api.Problem{Title: "Not supported by this store", Status: http.StatusNotImplemented}
	case errors.Is(err, context.DeadlineExceeded):
		return &api.Problem{
			Title: "The store did not answer in time", Status: http.StatusGatewayTimeout,
			Detail: "It is not known whether anything was charged.",
		}
	case errors.Is(err, store.ErrUnknownOutcome):
		return &api.Problem{
			Title: "The store did not answer", Status: http.StatusServiceUnavailable,
			Detail: "It is not known whether anything was charged.",
		}
	}
	return &api.Problem{Title: "The store is not available", Status: http.StatusServiceUnavailable, Detail: "Nothing was charged."}
}

// field returns what an ErrInvalid is about.
func field(err error) string {
	var pe *headgate.ParseError
	if errors.As(err, &pe) {
		return "limit"
	}
	text := strings.TrimPrefix(err.Error(), headgate.ErrInvalid.Error()+": ")
	text = strings.TrimPrefix(text, "unknown limit: ")
	name, _, ok := strings.Cut(text, ": ")
	if !ok || strings.ContainsAny(name, " \"") {
		return ""
	}
	return name
}
