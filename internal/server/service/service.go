// Package service decides and executes the requests of all protocols.
package service

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rules"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store"
)

const (
	// Deadline is how long the store may take for a request.
	Deadline = 10 * time.Second
	// ReadyTimeout is how long the store may take for a probe of whether it can write.
	ReadyTimeout = 2 * time.Second
)

// Service answers requests with a limiter and a configuration. It is safe for concurrent use.
type Service struct {
	limiter         *headgate.Limiter
	config          *config.Config
	names           catalog.Names
	resolver        resolver
	probe           probe
	refusals        refusals
	observer        *httplimit.Observer
	onAdmin         func(AdminAction)            // may be nil
	anonymousAuthor string                       // author of the actions of callers without a name
	rules           *atomic.Pointer[rules.Rules] // replaced as a whole: one file's rules decide a request
	prices          *atomic.Pointer[llm.Prices]  // replaced with the rules
	traffic         *traffic.Traffic
}

// New returns a service. names must be the limiter's Names; nil: c has all named limits.
func New(l *headgate.Limiter, c *config.Config, names catalog.Names) *Service {
	s := &Service{
		limiter: l, config: c, names: cmp.Or[catalog.Names](names, c), rules: &atomic.Pointer[rules.Rules]{},
		prices: &atomic.Pointer[llm.Prices]{}, traffic: traffic.New(nil),
		resolver: resolver{limits: map[string]cachedLimit{}, notations: map[string]*notation{}},
	}
	s.observer = httplimit.NewObserver(l, s.longestPause())
	s.rules.Store(c.Rules)
	s.prices.Store(&c.Prices)
	return s
}

// Rules returns the rules in force, at first those of the configuration; nil: none.
func (s *Service) Rules() *rules.Rules { return s.rules.Load() }

// UseFiles makes the service read its rules and prices from pointers. Call it before the service is used.
func (s *Service) UseFiles(r *atomic.Pointer[rules.Rules], p *atomic.Pointer[llm.Prices]) {
	s.rules, s.prices = r, p
}

// Inspect returns the state of one key. It calls hold with r.Attempts before it reads more than an inspection returns.
func (s *Service) Inspect(ctx context.Context, r *api.InspectRequest, hold func(attempts int) error) (
	*api.Status, error,
) {
	if r.Attempts < 0 || r.Attempts > api.MaxAttempts {
		return nil, headgate.Invalid("attempts", "%d is not a number from 0 to %d", r.Attempts, api.MaxAttempts)
	}
	limit, err := s.limitOfCell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	st, err := s.limiter.Inspect(ctx, limit, r.Key)
	switch returned := len(st.History); {
	case err != nil:
		return nil, err
	case r.Attempts != 0 && r.Attempts <= returned:
		st.History = st.History[:r.Attempts]
	case r.Attempts != 0 && returned > 0: // an inspection does not return all attempts
		if err := hold(r.Attempts); err != nil {
			return nil, err
		}
		if st.History, err = s.limiter.Attempts(ctx, limit, r.Key, r.Attempts); err != nil {
			return nil, err
		}
	}
	return status(st), nil
}

// Reset removes the state of one key. Like Block, it is audited.
func (s *Service) Reset(ctx context.Context, r *api.ResetRequest) (*api.Reset, error) {
	limit, err := s.limitOfCell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	if err := law.ValidText("reason", r.Reason, store.MaxNote); err != nil {
		return nil, err
	}
	existed, err := s.limiter.Reset(ctx, limit, r.Key)
	s.audit(ctx, AdminAction{Verb: "reset", Limit: limit.Name(), Key: r.Key, Reason: r.Reason}, err)
	if err != nil {
		return nil, err
	}
	return &api.Reset{Existed: existed}, nil
}

// Block refuses one key for a while, or lifts its block.
func (s *Service) Block(ctx context.Context, r *api.Block) (*api.Status, error) {
	limit, err := s.limitOfCell(ctx, r.Limit, r.NoKey)
	if err != nil {
		return nil, err
	}
	d := time.Duration(0)
	if r.For != "0" {
		if d, err = headgate.ParsePeriod(r.For); err != nil {
			return nil, InField("for", err)
		}
	}
	if err := s.extendUse("for", d, limit); err != nil {
		return nil, err
	}
	st, err := s.limiter.Block(ctx, limit, r.Key, d, r.Reason)
	verb := "block"
	if d == 0 {
		verb = "unblock"
	}
	s.audit(ctx, AdminAction{Verb: verb, Limit: limit.Name(), Key: r.Key, For: d, Reason: r.Reason}, err)
	if err != nil {
		return nil, err
	}
	return status(st), nil
}

// Cells lists keys with their states: those of one limit, or of all if the caller may use all limits.
func (s *Service) Cells(ctx context.Context, r *api.CellsQuery) (*api.Cells, error) {
	q := store.Query{After: law.Cell{Limit: r.AfterLimit, Key: r.AfterKey}, Blocked: r.Blocked, Max: r.Max}
	var limits []headgate.Limit
	for _, l := range s.names.List() {
		limits = append(limits, l.Limit)
	}
	if r.Limit != "" {
		l, err := s.existingLimit(ctx, r.Limit)
		if err != nil {
			return nil, err
		}
		if q.Limit = l.Name(); q.After.Limit == r.Limit {
			q.After.Limit = q.Limit
		}
	} else if caller := auth.CallerOf(ctx); !caller.AllLimits() {
		return nil, fmt.Errorf("%w: %s may not list the keys of all limits; name one", auth.ErrForbidden, caller)
	}
	list, err := s.limiter.List(ctx, q, limits...)
	if err != nil {
		return nil, err
	}
	cells := &api.Cells{Cells: make([]api.Status, len(list))}
	for i, st := range list {
		cells.Cells[i] = *status(st)
	}
	return cells, nil
}

// Limits lists the named limits that the caller may use. It fails if the limits could not be read from the store yet.
func (s *Service) Limits(ctx context.Context, _ *struct{}) (*api.Limits, error) {
	definitions := s.names.List()
	if err := s.names.Err(); err != nil && len(definitions) == 0 {
		return nil, err
	}
	list := &api.Limits{Limits: make([]api.Limit, 0, len(definitions))}
	for _, l := range definitions {
		if s.checkLimit(auth.CallerOf(ctx), l.Name()) != nil {
			continue
		}
		list.Limits = append(list.Limits, api.Limit{
			Name: l.Name(), Limit: l.String(), Description: l.Description, Bound: l.Bound().String(),
		})
	}
	return list, nil
}

func status(s headgate.Status) *api.Status {
	out := &api.Status{
		Limit: s.Limit, Key: s.Key, Exists: s.Exists, Rule: s.Rule, Applied: s.Applied,
		Used: json.Number(s.Used.String()), At: s.At.UnixMicro(), Reason: s.Reason,
		ResetAt: instant(s.EmptyAt), BlockedUntil: instant(s.BlockedUntil),
	}
	if !s.Capacity.IsZero() {
		out.Capacity = json.Number(s.Capacity.String())
	}
	if s.Remaining >= 0 {
		out.Remaining = api.Number(s.Remaining, s.RemainingNanos)
	}
	for _, a := range s.History {
		out.History = append(out.History, api.Attempt{
			Number: a.Number, At: a.At.UnixMicro(), Cost: json.Number(a.Cost.String()), Allowed: a.Allowed,
		})
	}
	return out
}

// instant returns microseconds since 1970; nil: t is zero.
func instant(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMicro())
}
