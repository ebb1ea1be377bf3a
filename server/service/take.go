package service

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
)

// MaxBatch is how many charges one request or batch may carry.
const MaxBatch = 10_000

// Take takes the charges of a request, or asks about them with check.
func (s *Service) Take(ctx context.Context, r *api.Request, check bool) (*api.Decision, error) {
	if r.Check {
		return nil, Invalid("check", "stands only in the requests of a batch; ask /v1/check")
	}
	charges, err := s.charges(nil, r)
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
	var a answer
	a.set(&d, len(charges) > 1)
	return &a.Decision, nil
}

// Batch answers many requests; those that are wrong fail alone.
func (s *Service) Batch(ctx context.Context, b *api.Batch) (*api.Answers, error) {
	if len(b.Requests) == 0 {
		return nil, Invalid("requests", "there is none")
	}
	answers := &api.Answers{Answers: make([]api.Answer, len(b.Requests))}
	requests := make([]headgate.Request, 0, len(b.Requests))
	index := make([]int, 0, len(b.Requests))
	all := make([]headgate.Charge, 0, len(b.Requests)) // of all requests
	for i := range b.Requests {
		r := &b.Requests[i]
		start := len(all)
		with, err := s.charges(all, r)
		if err != nil {
			answers.Answers[i].Problem = Problem(err)
			continue
		}
		if all = with; len(all) > MaxBatch {
			return nil, Invalid("requests", "carry more than %d charges", MaxBatch)
		}
		requests = append(requests, headgate.Request{Charges: all[start:len(all):len(all)], Check: r.Check})
		index = append(index, i)
	}
	got, err := s.limiter.Batch(ctx, requests)
	if err != nil {
		return nil, err
	}
	decisions := make([]answer, len(got))
	for k := range got {
		a := &answers.Answers[index[k]]
		if got[k].Err != nil {
			a.Problem = Problem(got[k].Err)
			continue
		}
		decisions[k].set(&got[k].Decision, len(requests[k].Charges) > 1)
		a.Decision = &decisions[k].Decision
	}
	return answers, nil
}

// charges appends what a request asks for to a list.
func (s *Service) charges(list []headgate.Charge, r *api.Request) ([]headgate.Charge, error) {
	switch {
	case len(r.Charges) == 0 && r.Limit == "":
		return nil, Invalid("limit", "is missing")
	case len(r.Charges) == 0:
		return s.charge(list, &r.Charge)
	case r.Charge != api.Charge{}:
		return nil, Invalid("charges", "stand beside limit, key or cost; say one or the other")
	case len(r.Charges) > MaxBatch:
		return nil, Invalid("charges", "are more than %d", MaxBatch)
	}
	var err error
	for i := range r.Charges {
		if list, err = s.charge(list, &r.Charges[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (s *Service) charge(list []headgate.Charge, c *api.Charge) ([]headgate.Charge, error) {
	limit, err := s.resolve(c.Limit)
	if err != nil {
		return nil, err
	}
	var cost headgate.Cost
	if c.Cost != "" {
		if cost, err = headgate.ParseCost(c.Cost.String()); err != nil {
			return nil, err
		}
	}
	return append(list, headgate.Charge{Limit: limit, Key: c.Key, Cost: cost}), nil
}

// known are limits that were resolved before: to parse a notation takes longer
// than to decide.
type known struct {
	mu     sync.RWMutex
	limits map[string]headgate.Limit // guarded by mu
}

// maxKnown is how many are remembered before it starts anew, and maxLine how
// long they may be.
const (
	maxKnown = 1000
	maxLine  = 256
)

// resolve is config.Resolve with a memory.
func (s *Service) resolve(nameOrNotation string) (headgate.Limit, error) {
	s.known.mu.RLock()
	l, ok := s.known.limits[nameOrNotation]
	s.known.mu.RUnlock()
	if ok {
		return l, nil
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil || len(nameOrNotation) > maxLine {
		return l, err
	}
	s.known.mu.Lock()
	if len(s.known.limits) >= maxKnown || s.known.limits == nil {
		s.known.limits = map[string]headgate.Limit{}
	}
	s.known.limits[nameOrNotation] = l
	s.known.mu.Unlock()
	return l, nil
}

// answer is a decision on the wire, with room for what it points to.
type answer struct {
	api.Decision
	retry int64
}

// set writes a decision about one charge, or about several.
func (a *answer) set(d *headgate.Decision, several bool) {
	a.Decision = api.Decision{
		Allowed: d.Allowed, Limit: d.Limit, Remaining: d.Remaining,
		ResetAfterMS: millis(d.ResetAfter), At: d.At.UnixMicro(), Entry: d.Entry,
	}
	if several {
		a.Key = d.Key
	}
	if d.Via != headgate.ViaStore {
		a.Via = d.Via.String()
	}
	if d.RetryAfter != headgate.Never {
		a.retry = millis(d.RetryAfter)
		a.RetryAfterMS = &a.retry
	}
}

// millis rounds up.
func millis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
