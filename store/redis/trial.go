package redis

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// applyAcrossSlots decides one request: group has the indexes of its ops. Its component (see law.Components) has
// requests with charges in several slots of a cluster, so no single call can decide it. For a Take, each slot charges
// its part on trial, and if one refuses, the others give their parts back. Between the two round trips other requests
// see charges that may be given back. Such a charge stays if the process crashes there, or if giving back fails or,
// without an ID, takes longer than a minute. A Deferred request never has charges in several slots: see checkRequest.
//
// Each slot remembers the ID of its part, and forgets the ID when the part is given back. If the same request was
// retried meanwhile and a slot has answered it from the remembered part, that part stays charged and remembered, even
// if both requests are refused in the end.
//
// For an Extend, each slot charges the difference on trial. Giving it back restores the slot's earlier receipt, and a
// log entry that the extension has moved gets its earlier time again. A slot that needs no more takes nothing, and
// remembers the ID for the new time, whether the other slots refuse or not.
//
// For a Settle, each slot settles its part. If one slot does not know the ID, or has settled it differently, the
// request fails, but the other slots have settled. A retry changes nothing there.
func (s *Store) applyAcrossSlots(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int) error {
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
		return s.applyOnTrial(ctx, ops, outs, group, calls)
	}
	if err := worst(s.decideCalls(ctx, calls, ops, outs)); err != nil {
		return err
	}
	if err := firstErr(outs, group); err != nil {
		failAll(outs, group, err)
	} else if ops[group[0]].Verb != law.Return && len(slots) > 1 { // each op of a Return is decided alone
		spreadStale(ops, outs, group)
	}
	return nil
}

// firstErr returns the first error among the outcomes of a group, or nil.
func firstErr(outs []law.Outcome, group []int) error {
	for _, i := range group {
		if outs[i].Err != nil {
			return outs[i].Err
		}
	}
	return nil
}

// failAll sets the outcomes of a group to an error.
func failAll(outs []law.Outcome, group []int, err error) {
	for _, i := range group {
		outs[i] = law.Outcome{Err: err}
	}
}

// worst returns the error that leaves the most in doubt; nil if there is none.
func worst(errs []error) (err error) {
	for _, e := range errs {
		if e != nil && (err == nil || errors.Is(class(e), store.ErrUnknownOutcome)) {
			err = e
		}
	}
	return err
}

// part is a call on trial, with its results. Each slice has an element for each op. An empty text stands for nothing.
type part struct {
	call     *call
	admitted bool   // the call has admitted all of its ops
	replayed []bool // the op was charged before, or needs no more: it is not given back

	// States of the op's cell: before the call, as a refusal would have left it, and after the call. Only the first op
	// on a cell has them.
	stateBefore, stateRefused, stateAfter []string

	receipt    []string // the cell's receipt of the ID; without an ID a number that a reset changes, see register.lua
	oldReceipt []string // the receipt before the call
	moved      []string // the log entry that the op has moved, see batch.lua
}

// partTexts is how many texts of part a script on trial answers for each op.
const partTexts = 6

// applyOnTrial charges a request on trial, and gives it back unless all slots admit it.
func (s *Store) applyOnTrial(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*call) error {
	parts := make([]*part, len(calls))
	for i, c := range calls {
		parts[i] = &part{call: c}
	}
	callErr := worst(s.runCalls(ctx, calls, func(i int, res rueidis.RedisResult) error {
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
	var groupErr error
	if callErr == nil {
		groupErr = firstErr(outs, group)
	}
	for _, i := range group {
		stale = stale || outs[i].Stale
	}
	var back []*call
	for _, p := range parts {
		if p.admitted {
			if c := s.giveBack(ops, outs, p, stale || callErr != nil || groupErr != nil); c != nil {
				back = append(back, c)
			}
		}
	}
	if err := s.giveAllBack(ctx, ops, outs, back); err != nil {
		s.log.Error("a charge of a refused request could not be given back", "error", err)
		if callErr != nil {
			callErr = errStillCharged
		}
	}
	switch {
	case callErr != nil:
		return callErr
	case groupErr != nil:
		failAll(outs, group, groupErr)
	default:
		for _, i := range group {
			if isAdmitted(&ops[i], &outs[i]) {
				outs[i].RetryAt = 0
			}
		}
		spreadStale(ops, outs, group)
	}
	return nil
}

// read reads the answer of a trial: the outcomes of the ops, then the texts of part.
func (p *part) read(ops []law.Op, outs []law.Outcome, list []message) error {
	if len(list) != 1+len(p.call.index)*partTexts {
		return fmt.Errorf("the script answered with %d values", len(list))
	}
	v, err := list[0].ToString()
	if err == nil {
		err = p.call.decode(v, ops, outs)
	}
	if err != nil {
		return err
	}
	for i := 1; i < len(list); i += partTexts {
		for k, field := range []*[]string{
			&p.stateBefore, &p.stateRefused, &p.stateAfter, &p.receipt, &p.oldReceipt, &p.moved,
		} {
			text, err := list[i+k].ToString()
			if err != nil {
				return err
			}
			*field = append(*field, text)
		}
	}
	p.admitted = true
	for _, i := range p.call.index {
		out := &outs[i]
		p.replayed = append(p.replayed, out.Replayed)
		p.admitted = p.admitted && isAdmitted(&ops[i], out)
	}
	return nil
}

// isAdmitted reports whether the slot of an op has admitted it.
func isAdmitted(op *law.Op, out *law.Outcome) bool {
	switch {
	case out.Err != nil, out.Stale:
		return false
	case op.Verb == law.Extend:
		return out.RetryAt == 0
	default: // a replayed charge may have had another Count, with units of another cost
		return out.Replayed || out.Granted == op.Count || op.Partial && out.Granted > 0
	}
}

// spreadStale makes all outcomes of a group stale if one is. It spares replayed outcomes of an Extend.
func spreadStale(ops []law.Op, outs []law.Outcome, group []int) {
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
