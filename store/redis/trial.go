package redis

import (
	"context"
	"errors"
	"fmt"

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
	calls := make([]*answered, len(slots))
	for n, slot := range slots {
		calls[n] = &answered{s.encode(ops, bySlot[slot], how), ops, outs}
	}
	if how == onTrial {
		return s.decide(ctx, ops, outs, group, calls)
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
	call               *answered
	was, before, after []string // of each op's cell, at its first op: as it was, had it been refused, as it is
	admission          []string // of each op: what the trial made its cell remember of the ID
	forgotten          []string // of each op: in the place of what
	admitted           bool
	err                error
}

// decide takes a request on trial, and gives it back unless all slots admit it.
func (s *Store) decide(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*answered) error {
	parts := make([]*part, len(calls))
	for i, c := range calls {
		parts[i] = &part{call: c}
	}
	s.ask(ctx, ops, outs, parts)
	if ops[group[0]].Late {
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
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	switch {
	case admitted && ops[group[0]].Late:
		if admitted, failed = s.startTogether(ctx, ops, outs, group, parts); admitted {
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
	alike(outs, group)
	return nil
}

// ask takes parts of a request on trial, and says in each what became of it.
func (s *Store) ask(ctx context.Context, ops []law.Op, outs []law.Outcome, parts []*part) {
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
				err = p.read(ops, outs, list)
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

// giveAllBack makes calls of giveback.lua, and returns an error if a charge may
// be left. The caller of the request may be gone: that does not stop it.
func (s *Store) giveAllBack(ctx context.Context, ops []law.Op, outs []law.Outcome, calls []*call) (left error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.RetryFor)
	defer cancel()
	var lost error
	_, _ = store.Retry(ctx, s.cfg.RetryFor, func() (err error) {
		var open []*call
		left = lost
		for i, res := range s.send(ctx, calls) {
			numbers, e := res.AsIntSlice()
			if e == nil && len(numbers) != 7*len(calls[i].index) {
				e = fmt.Errorf("the script answered with %d numbers", len(numbers))
			}
			switch {
			case e != nil && again(e):
				err, left = e, e
				open = append(open, calls[i])
				continue
			case e != nil:
				lost, left = e, e
				continue
			}
			for n, op := range calls[i].index {
				outs[op].State = decodeState(numbers[7*n:])
				if ops[op].Params.History == 0 {
					outs[op].Entry = 0
				}
			}
		}
		calls = open
		return err
	}, again)
	return left
}

// errLeft has no class of its own, and so is an unknown outcome.
var errLeft = errors.New("a part of the request stays charged")

// read reads the answer of a trial.
func (p *part) read(ops []law.Op, outs []law.Outcome, list []message) error {
	if len(list) != 1+len(p.call.index)*5 {
		return fmt.Errorf("the script answered with %d values", len(list))
	}
	v, err := list[0].ToString()
	if err == nil {
		err = p.call.decode(v, ops, outs)
	}
	if err != nil {
		return err
	}
	p.admitted = true
	p.was, p.before, p.after, p.admission, p.forgotten = nil, nil, nil, nil, nil
	for _, i := range p.call.index {
		out := &outs[i]
		// What is known may have been asked as so many units of another cost.
		p.admitted = p.admitted && !out.Stale && (out.Replayed || out.Granted == ops[i].Count || ops[i].Partial && out.Granted > 0)
	}
	for i := 1; i < len(list); i += 5 {
		for k, to := range []*[]string{&p.was, &p.before, &p.after, &p.admission, &p.forgotten} {
			text, err := list[i+k].ToString()
			if err != nil {
				return err
			}
			*to = append(*to, text)
		}
	}
	return nil
}

// giveBack returns the call of giveback.lua for a part; nil if the part took
// nothing, since it was known. undone says that nobody has refused the request: it
// is as if it had not been asked.
func (s *Store) giveBack(ops []law.Op, outs []law.Outcome, p *part, undone bool) *call {
	before := p.before
	if undone {
		before = p.was
	}
	var texts []string
	var backs []law.Op
	var all, index []int
	for n, i := range p.call.index {
		if outs[i].Replayed {
			continue
		}
		op := law.Back(&ops[i], &outs[i], ops[i].Cost*outs[i].Granted)
		if p.admission[n] != "" {
			op.ID = ops[i].ID
		}
		texts = append(texts, before[n], p.after[n], p.admission[n], p.forgotten[n])
		all, index, backs = append(all, len(all)), append(index, i), append(backs, op)
	}
	if len(index) == 0 {
		return nil
	}
	c := s.call(giveBackScript, texts, backs, all, forGood)
	c.index = index
	return c
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
