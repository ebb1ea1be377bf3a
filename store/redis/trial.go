package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// try decides groups one after another, of which some have charges in several
// slots of a cluster. No script can decide those: each slot takes its part on
// trial, and if one refuses, the others give theirs back. This is the one
// place where another request can see a charge for an instant that is then
// given back, and where a crash between the two round trips leaves one.
func (s *Store) try(ctx context.Context, ops []law.Op, outs []law.Outcome, groups [][]int) error {
	for _, group := range groups {
		bySlot := map[uint16][]int{}
		for _, i := range group {
			slot := slotOf(ops[i].Cell)
			bySlot[slot] = append(bySlot[slot], i)
		}
		var calls []*answered
		onTrial := len(bySlot) > 1 && ops[group[0]].Verb == law.Take
		for _, index := range bySlot {
			calls = append(calls, &answered{s.encode(ops, index, onTrial), outs})
		}
		if !onTrial {
			if err := errors.Join(s.do(ctx, calls)...); err != nil {
				return classify("apply a request", err)
			}
			alike(outs, group)
			continue
		}
		if err := s.decide(ctx, ops, outs, group, calls); err != nil {
			return err
		}
	}
	return nil
}

// part is a call on trial, with what it did.
type part struct {
	call               *answered
	was, before, after []string // of each cell: as it was, had it been refused, as it is
	admitted           bool
	err                error
}

func (s *Store) decide(ctx context.Context, ops []law.Op, outs []law.Outcome, group []int, calls []*answered) error {
	parts := make([]*part, len(calls))
	admitted, stale := true, false
	var failed error
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
	for _, p := range parts {
		admitted = admitted && p.admitted
		if p.err != nil {
			failed = p.err
		}
	}
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
	// The caller may be gone, but what was taken for nothing is given back.
	for i, res := range s.send(context.WithoutCancel(ctx), back) {
		numbers, err := res.AsIntSlice()
		if err == nil && len(numbers) != 7*len(back[i].index) {
			err = fmt.Errorf("the script answered with %d numbers", len(numbers))
		}
		if err != nil {
			s.log.Error("a charge of a refused request could not be given back", "error", err)
			continue
		}
		for n, i := range back[i].index {
			outs[i].State = decodeState(numbers[7*n:])
			if ops[i].Params.History == 0 {
				outs[i].Entry = 0
			}
		}
	}
	if failed != nil {
		return classify("apply a request", failed)
	}
	alike(outs, group)
	return nil
}

// read reads the answer of a trial.
func (p *part) read(ops []law.Op, outs []law.Outcome, list []message) error {
	n := len(p.call.index) * width
	if len(list) != n+len(p.call.keys)/2*3 {
		return fmt.Errorf("the script answered with %d values", len(list))
	}
	numbers := make([]int64, n)
	for i := range numbers {
		v, err := list[i].AsInt64()
		if err != nil {
			return err
		}
		numbers[i] = v
	}
	p.admitted = true
	for k, i := range p.call.index {
		outs[i] = decode(numbers[k*width:])
		out := &outs[i]
		p.admitted = p.admitted && !out.Stale && (out.Granted == ops[i].Count || ops[i].Partial && out.Granted > 0)
	}
	for i := n; i < len(list); i += 3 {
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

// giveBack writes the arguments of giveback.lua. undone says that nobody has
// refused the request: it is as if it had not been asked.
func (s *Store) giveBack(ops []law.Op, outs []law.Outcome, p *part, undone bool) *call {
	c := &call{script: giveBackScript, keys: p.call.keys, index: p.call.index, args: s.head()}
	before := p.before
	if undone {
		before = p.was
	}
	for i := range before {
		c.args = append(c.args, before[i], p.after[i])
	}
	c.args = append(c.args, strconv.Itoa(len(c.index)))
	for _, i := range c.index {
		op, out := &ops[i], &outs[i]
		cell := 0
		for k := 0; k < len(c.keys); k += 2 {
			if c.keys[k] == s.cellKey(op.Cell) {
				cell = k/2 + 1
			}
		}
		for _, v := range []int64{
			int64(cell), int64(op.Params.Anchor), op.Params.Step, max(op.Params.Drain, 1), op.Params.History,
			op.Count * op.Cost, op.Now, out.Entry, max(out.Clock, out.State.At) + op.Params.Step,
		} {
			c.args = append(c.args, strconv.FormatInt(v, 10))
		}
		c.args = append(c.args, op.ID)
	}
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
