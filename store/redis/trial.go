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
	onTrial := len(slots) > 1 && ops[group[0]].Verb == law.Take
	calls := make([]*answered, len(slots))
	for n, slot := range slots {
		calls[n] = &answered{s.encode(ops, bySlot[slot], onTrial), ops, outs}
	}
	if onTrial {
		return s.decide(ctx, ops, outs, group, calls)
	}
	if err := worst(s.do(ctx, calls)); err != nil {
		return err
	}
	if ops[group[0]].Verb != law.Return { // each of these stands alone
		alike(outs, group)
	}
	return nil
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
	admitted           bool
	err                error
}

// decide takes a request on trial, and gives it back unless all slots admit it.
func (s *Store) decide(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*answered) error {
	parts := make([]*part, len(calls))
	admitted, stale := true, false
	for i, c := range calls {
		parts[i] = &part{call: c}
	}
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
	errs := make([]error, len(parts))
	for i, p := range parts {
		admitted = admitted && p.admitted
		errs[i] = p.err
	}
	failed := worst(errs)
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	if admitted {
		return nil
	}
	var back []*call
	for _, p := range parts {
		if p.admitted {
			back = append(back, s.giveBack(ops, outs, p, stale || failed != nil))
		}
	}
	if left := s.giveAllBack(ctx, ops, outs, back); left != nil {
		s.log.Error("a charge of a refused request could not be given back", "error", left)
		if failed != nil {
			failed = errLeft
		}
	}
	if failed != nil {
		return failed
	}
	alike(outs, group)
	return nil
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
	if len(list) != 1+len(p.call.index)*3 {
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
	for _, i := range p.call.index {
		out := &outs[i]
		p.admitted = p.admitted && !out.Stale && (out.Granted == ops[i].Count || ops[i].Partial && out.Granted > 0)
	}
	for i := 1; i < len(list); i += 3 {
		for k, to := range []*[]string{&p.was, &p.before, &p.after} {
			text, err := list[i+k].ToString()
			if err != nil {
				return err
			}
			*to = append(*to, text)
		}
	}
	return nil
}

// giveBack returns the call of giveback.lua for a part. undone says that nobody
// has refused the request: it is as if it had not been asked.
func (s *Store) giveBack(ops []law.Op, outs []law.Outcome, p *part, undone bool) *call {
	before := p.before
	if undone {
		before = p.was
	}
	var texts []string
	for i := range before {
		texts = append(texts, before[i], p.after[i])
	}
	backs, all := make([]law.Op, len(p.call.index)), make([]int, len(p.call.index))
	for n, i := range p.call.index {
		backs[n], all[n] = law.Back(&ops[i], &outs[i], ops[i].Cost*outs[i].Granted), n
	}
	c := s.call(giveBackScript, texts, backs, all, false)
	c.index = p.call.index
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
