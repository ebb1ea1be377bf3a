package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// try decides one of a chain of requests of which some have charges in several
// slots of a cluster. No script can decide those: each slot takes its part on
// trial, and if one refuses, the others give theirs back. This is the one place
// where another request can see a charge for an instant that is then given
// back, and where a crash between the two round trips leaves one.
//
// Each slot remembers the ID of its part, and forgets it with what is given back.
// If the same request was asked again meanwhile and has been told of a part, that
// part stays, charged and remembered, even if both are refused in the end. A Late
// request that some slots know and others do not is decided anew in all: see
// askAnew.
//
// Of a request to settle, each slot settles its part. If one does not know the ID,
// or has settled it otherwise, the request fails, but the others have settled
// theirs; asked again, they stay as they are.
func (s *Store) try(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int) error {
	var slots []uint16
	bySlot := map[uint16][]int{}
	for _, i := range group {
		slot := slotOf(ops[i].Cell)
		if bySlot[slot] == nil {
			slots = append(slots, slot)
		}
		bySlot[slot] = append(bySlot[slot], i)
	}
	how := forGood
	if len(slots) > 1 && ops[group[0]].Verb == law.Take {
		how = onTrial
	}
	asking := 1 + rand.Int64N(law.Max)
	calls := make([]*answered, len(slots))
	for n, slot := range slots {
		calls[n] = &answered{s.encodeFor(asking, ops, bySlot[slot], how), ops, outs}
	}
	if how == onTrial {
		return s.decide(ctx, ops, outs, group, calls, asking)
	}
	if err := worst(s.do(ctx, calls)); err != nil {
		return err
	}
	if err := wrong(outs, group); err != nil {
		failAll(outs, group, err)
	} else if ops[group[0]].Verb != law.Return { // each of these stands alone
		alike(outs, group)
	}
	return nil
}

// starts tells whether the charges of a request need a start in common: it is Late, or
// was when it was asked before.
func starts(ops []law.Op, outs []law.Outcome, group []int) bool {
	return ops[group[0]].Late || slices.ContainsFunc(group, func(i int) bool { return outs[i].Replayed && outs[i].StartAt > 0 })
}

// wrong returns what is wrong with the ID of a group, or nil.
func wrong(outs []law.Outcome, group []int) error {
	for _, i := range group {
		if outs[i].Err != nil {
			return outs[i].Err
		}
	}
	return nil
}

func failAll(outs []law.Outcome, group []int, err error) {
	for _, i := range group {
		outs[i] = law.Outcome{Err: err}
	}
}

// worst returns the error that leaves the most in doubt.
func worst(errs []error) (err error) {
	for _, e := range errs {
		if e != nil && (err == nil || errors.Is(class(e), store.ErrUnknownOutcome)) {
			err = e
		}
	}
	return err
}

// part is a call on trial, with what it did.
type part struct {
	call     *answered
	asking   int64 // what it charges remembers it: an ID may be asked more than once
	admitted bool
	err      error
	known    []bool // of each op: what was charged by another asking is not given back
	texts
}

// texts are of each op of a part.
type texts struct {
	was, before, after []string // of each op's cell, at its first op: as it was, had it been refused, as it is
	admission          []string // of each op: what its cell remembers of the ID
	forgotten          []string // of each op: in the place of what
}

// decide takes a request on trial, and gives it back unless all slots admit it.
func (s *Store) decide(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*answered, asking int64) error {
	parts := make([]*part, len(calls))
	for i, c := range calls {
		parts[i] = &part{call: c, asking: asking}
	}
	s.ask(ctx, parts, func(p *part, list []message) error { return p.read(ops, outs, list) })
	if starts(ops, outs, group) {
		s.askAnew(ctx, ops, outs, group, parts)
	}
	admitted, stale := true, false
	errs := make([]error, len(parts))
	for i, p := range parts {
		admitted = admitted && p.admitted
		errs[i] = p.err
	}
	failed := worst(errs)
	var fault error
	var refused map[int]law.Outcome // of raising
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	switch {
	case admitted && starts(ops, outs, group):
		if refused, failed = s.startTogether(ctx, ops, outs, group, parts); refused == nil && failed == nil {
			return nil
		}
	case admitted:
		return nil
	case failed == nil:
		fault = wrong(outs, group)
	}
	var back []*call
	for _, p := range parts {
		if p.admitted {
			if c := s.giveBack(ops, outs, p, stale || failed != nil || fault != nil); c != nil {
				back = append(back, c)
			}
		}
	}
	if left := s.giveAllBack(ctx, ops, outs, back); left != nil {
		s.log.Error("a charge of a refused request could not be given back", "error", left)
		if failed != nil {
			failed = errLeft
		}
	}
	switch {
	case failed != nil:
		return failed
	case fault != nil:
		failAll(outs, group, fault)
		return nil
	}
	for _, i := range group {
		outs[i].StartAt = 0
	}
	for i, out := range refused {
		outs[i].Granted, outs[i].Used, outs[i].RetryAt = out.Granted, out.Used, out.RetryAt
	}
	alike(outs, group)
	return nil
}

// ask makes the calls of parts, of which read reads the answers, and says in each
// what went wrong.
func (s *Store) ask(ctx context.Context, parts []*part, read func(p *part, list []message) error) {
	open := parts
	_, _ = store.Retry(ctx, s.cfg.RetryFor, func() error {
		plain := make([]*call, len(open))
		for i, p := range open {
			plain[i] = p.call.call
		}
		var left []*part
		for i, res := range s.send(ctx, plain) {
			p := open[i]
			list, err := res.ToArray()
			if err == nil {
				err = read(p, list)
			}
			if p.err = err; err != nil && again(err) {
				left = append(left, p)
			}
		}
		if open = left; len(open) > 0 {
			return open[0].err
		}
		return nil
	}, again)
}

// read reads the answer of a trial.
func (p *part) read(ops []law.Op, outs []law.Outcome, list []message) error {
	texts, err := p.call.texts(ops, outs, list)
	if err != nil {
		return err
	}
	p.texts = texts
	p.admitted, p.known = true, nil
	for _, i := range p.call.index {
		out := &outs[i]
		p.known = append(p.known, out.Replayed)
		// What is known may have been asked as so many units of another cost.
		p.admitted = p.admitted && !out.Stale && (out.Replayed || out.Granted == ops[i].Count || ops[i].Partial && out.Granted > 0)
	}
	return nil
}

// texts reads the answer of a call on trial: after the outcomes, what it did.
func (c *call) texts(ops []law.Op, outs []law.Outcome, list []message) (t texts, err error) {
	if len(list) != 1+len(c.index)*5 {
		return t, fmt.Errorf("the script answered with %d values", len(list))
	}
	v, err := list[0].ToString()
	if err == nil {
		err = c.decode(v, ops, outs)
	}
	for i := 1; i < len(list) && err == nil; i += 5 {
		for k, to := range []*[]string{&t.was, &t.before, &t.after, &t.admission, &t.forgotten} {
			var text string
			if text, err = list[i+k].ToString(); err != nil {
				break
			}
			*to = append(*to, text)
		}
	}
	return t, err
}

// alike makes a group stale of which one charge is.
func alike(outs []law.Outcome, group []int) {
	stale := false
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	for _, i := range group {
		if stale && !outs[i].Stale {
			outs[i] = law.Outcome{State: outs[i].State, Clock: outs[i].Clock, Stale: true}
		}
	}
}
