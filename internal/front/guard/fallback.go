package guard

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// fallback answers groups without the store, which has failed with err. Groups that cannot be answered fail with the
// error of their outcomes, or else with err. If all fail, fallback returns the error of the first, and clears outs.
func (s *Store) fallback(ops []law.Op, outs []law.Outcome, err error) error {
	anyDecided := false
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if e := s.answerGroup(ops[i:j], outs[i:j], cmp.Or(firstErr(outs[i:j]), err)); e != nil {
			law.FailAll(outs[i:j], e)
		} else {
			anyDecided = true
			s.degraded.Add(int64(j - i))
		}
	}
	if !anyDecided {
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

// answerGroup answers one group by the strictest policy of its limits, or returns what is wrong with it, or err.
func (s *Store) answerGroup(ops []law.Op, outs []law.Outcome, err error) error {
	policy := law.AwayAllow
	for i := range ops {
		op := &ops[i]
		if policy = min(policy, op.Params.Away); op.ID != "" || op.Deferred || op.Params.Leased {
			policy = law.AwayDeny // the store would have to remember the charge
		}
		if bad := op.Valid(); bad != nil {
			return bad
		}
	}
	switch policy {
	case law.AwayAllow:
		clear(outs)
		for i := range law.AlternativeEnd(ops, 0) {
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
		if e := s.shares.decide(ops, outs); e != nil {
			return fmt.Errorf("%w (%w)", err, e)
		}
		return nil
	default:
		return err
	}
}

var errNoShare = errors.New("this process has no share of the limit")

// scale returns the parameters of the part units/totalUnits of a limit; units is above 0. ok is false if nothing can
// pass by the part.
func scale(p *law.Params, units int64) (part law.Params, ok bool) {
	part = *p
	part.Capacity = mulDiv(p.Capacity, units, totalUnits)
	switch {
	case p.Kind != law.Bucket:
	case p.Anchor == law.Own && p.Drain < p.Capacity:
		part.Step = -mulDiv(-p.Step, totalUnits, units) // a longer step is as slow, and exact
	default:
		part.Drain = mulDiv(p.Drain, units, totalUnits)
	}
	return part, part.Valid() == nil
}
