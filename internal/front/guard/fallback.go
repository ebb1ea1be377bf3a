package guard

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// fallback answers groups without the store, which has failed with an error. Groups that it cannot answer fail
// with that error; if all do, it is the result.
func (s *Store) fallback(ops []law.Op, outs []law.Outcome, err error) error {
	answered := false
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if e := s.answer(ops[i:j], outs[i:j], cmp.Or(firstErr(outs[i:j]), err)); e != nil {
			law.FailAll(outs[i:j], e)
		} else {
			answered = true
			s.degraded.Add(int64(j - i))
		}
	}
	if !answered {
		first := firstErr(outs)
		clear(outs)
		return first
	}
	return nil
}

func firstErr(outs []law.Outcome) error {
	for i := range outs {
		if outs[i].Err != nil {
			return outs[i].Err
		}
	}
	return nil
}

// answer answers one group as the strictest of its limits says, or returns an error.
func (s *Store) answer(ops []law.Op, outs []law.Outcome, err error) error {
	policy := law.AwayAllow
	for i := range ops {
		op := &ops[i]
		if policy = min(policy, op.Params.Away); op.ID != "" || op.Deferred || op.Params.Leased {
			policy = law.AwayDeny // the store would have to know it later
		}
		if bad := op.Valid(); bad != nil {
			return bad
		}
	}
	switch policy {
	case law.AwayAllow:
		for i := range ops {
			op := &ops[i]
			now := cmp.Or(op.Now, store.SystemClock())
			outs[i] = law.Outcome{
				Granted: op.Count, Used: min(op.Cost, op.Params.Capacity), Clock: now, Via: law.ViaFallback,
				State: law.State{
					Kind: op.Params.Kind, At: now, Unit: op.Params.Unit, Step: op.Params.Step, EmptyAt: now,
				},
			}
		}
		return nil
	case law.AwayShare:
		if e := s.shares.apply(ops, outs); e != nil {
			return fmt.Errorf("%w (%w)", err, e)
		}
		return nil
	default:
		return err
	}
}

// errNoShare says why a share decides about nothing.
var errNoShare = errors.New("this process has no share of the limit")

// scaled returns the parameters of a part of a limit, of units of whole, which are more than 0; ok is false if nothing
// can pass by that.
func scaled(p *law.Params, units int64) (part law.Params, ok bool) {
	part = *p
	part.Capacity = mulDiv(p.Capacity, units, whole)
	switch {
	case p.Kind != law.Bucket:
	case p.Anchor == law.Own && p.Drain < p.Capacity:
		part.Step = -mulDiv(-p.Step, whole, units) // a longer step is as slow, and exact
	default:
		part.Drain = mulDiv(p.Drain, units, whole)
	}
	return part, part.Valid() == nil
}
