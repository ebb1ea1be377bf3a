package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// try decides one of a chain of requests of which some have charges in several
// slots of a cluster. No script can decide those: each slot takes its part on
// trial, and if one refuses, the others give theirs back. This is the one place
// where another request can see a charge for an instant that is then given
// back, and where a crash between the two round trips leaves one. A Late request
// never has charges in several slots: see plan.
//
// Each slot remembers the ID of its part, and forgets it with what is given back.
// If the same request was sent again meanwhile and has been answered with a part, that
// part stays, charged and remembered, even if both are refused in the end.
//
// Of a request to extend, each slot charges its part on trial too. What is given back is the
// difference alone: the slot remembers what it did before, and an entry of a log that was
// moved goes back to its time. A slot that needs no more takes nothing, and remembers the
// ID for as long as was asked, whether the others refuse or not.
//
// Of a request to settle, each slot settles its part. If one does not know the ID,
// or has settled it otherwise, the request fails, but the others have settled
// theirs; asked again, they stay as they are.
func (s *Store) try(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int) error {
	var slots []uint16
	bySlot := map[uint16][]int{}
	for _, i := range group {
		slot := s.slotOf(ops[i].Cell)
		if bySlot[slot] == nil {
			slots = append(slots, slot)
		}
		bySlot[slot] = append(bySlot[slot], i)
	}
	how := forGood
	if verb := ops[group[0]].Verb; len(slots) > 1 && (verb == law.Take || verb == law.Extend) {
		how = onTrial
	}
	calls := make([]*call, len(slots))
	for n, slot := range slots {
		calls[n] = s.encode(ops, bySlot[slot], how)
	}
	if how == onTrial {
		return s.decide(ctx, ops, outs, group, calls)
	}
	if err := worst(s.do(ctx, calls, ops, outs)); err != nil {
		return err
	}
	if err := wrong(outs, group); err != nil {
		failAll(outs, group, err)
	} else if ops[group[0]].Verb != law.Return { // each of these stands alone
		alike(ops, outs, group)
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
	call     *call
	admitted bool
	known    []bool // of each op: it was charged before, or needs no more, and is not given back

	// Of each op's cell, at its first op: as it was, had it been refused, as it is.
	was, before, after []string
	admission          []string // of each op: what its cell remembers of the ID
	forgotten          []string // of each op: in the place of what
	moved              []string // of each op: the entry of a log that it has moved, see batch.lua
}

// decide takes a request on trial, and gives it back unless all slots admit it.
func (s *Store) decide(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*call) error {
	parts := make([]*part, len(calls))
	for i, c := range calls {
		parts[i] = &part{call: c}
	}
	failed := worst(s.repeat(ctx, calls, func(i int, res rueidis.RedisResult) error {
		list, err := res.ToArray()
		if err == nil {
			err = parts[i].read(ops, outs, list)
		}
		return err
	}))
	admitted, stale := true, false
	for _, p := range parts {
		admitted = admitted && p.admitted
	}
	if admitted {
		return nil
	}
	var fault error
	if failed == nil {
		fault = wrong(outs, group)
	}
	for _, i := range group {
		stale = stale || outs[i].Stale
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
	default:
		for _, i := range group {
			if passed(&ops[i], &outs[i]) {
				outs[i].RetryAt = 0
			}
		}
		alike(ops, outs, group)
	}
	return nil
}

// read reads the answer of a trial: after the outcomes, what it did.
func (p *part) read(ops []law.Op, outs []law.Outcome, list []message) error {
	if len(list) != 1+len(p.call.index)*6 {
		return fmt.Errorf("the script answered with %d values", len(list))
	}
	v, err := list[0].ToString()
	if err == nil {
		err = p.call.decode(v, ops, outs)
	}
	if err != nil {
		return err
	}
	for i := 1; i < len(list); i += 6 {
		for k, to := range []*[]string{&p.was, &p.before, &p.after, &p.admission, &p.forgotten, &p.moved} {
			text, err := list[i+k].ToString()
			if err != nil {
				return err
			}
			*to = append(*to, text)
		}
	}
	p.admitted = true
	for _, i := range p.call.index {
		out := &outs[i]
		p.known = append(p.known, out.Replayed)
		p.admitted = p.admitted && passed(&ops[i], out)
	}
	return nil
}

// passed reports whether its slot has admitted an op.
func passed(op *law.Op, out *law.Outcome) bool {
	switch {
	case out.Err != nil, out.Stale:
		return false
	case op.Verb == law.Extend:
		return out.RetryAt == 0
	default: // what is known may have been asked as units of another cost
		return out.Replayed || out.Granted == op.Count || op.Partial && out.Granted > 0
	}
}

// alike makes a group stale of which one charge is, but for the charges that an extension
// leaves as they are.
func alike(ops []law.Op, outs []law.Outcome, group []int) {
	stale := false
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	for _, i := range group {
		if stale && !outs[i].Stale && (ops[i].Verb != law.Extend || !outs[i].Replayed) {
			outs[i] = law.Outcome{State: outs[i].State, Clock: outs[i].Clock, Stale: true}
		}
	}
}
