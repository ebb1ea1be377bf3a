package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// Away says what a limit answers while its store cannot decide: while it cannot be reached, takes no
// writes, or does not answer within the deadline. Package store/guard, which store/front contains,
// carries it out. Such a decision has Via == [ViaFallback]. What stands in the store is not changed.
//
// It is for requests that take and check. Everything else fails with the store's error, and so
// do requests with an id, reservations and leases, which the store would have to know later. Where the
// limits of one request differ, the strictest holds: AwayDeny before AwayShare before AwayAllow.
type Away = law.Away

// What a limit answers while its store cannot decide. In notation, "away share" and "away allow".
const (
	// AwayDeny is the zero Away: the store's error, and nothing is admitted.
	AwayDeny = law.AwayDeny
	// AwayShare divides the limit by the processes that use the store, and each decides by
	// its part in memory. The parts of all processes are never more than the limit, also when some of them
	// reach the store and others do not: see [Bound].
	AwayShare = law.AwayShare
	// AwayAllow admits everything. The limit has no bound then.
	AwayAllow = law.AwayAllow
)

// checkAway writes the options for a store that is away into p, or says what is wrong with them.
func (t Tail) checkAway(p *law.Params) error {
	switch {
	case t.Away > AwayAllow:
		return Invalid("away", "%d is not a policy", t.Away)
	case t.Away != AwayDeny && p.Leased:
		return Invalid("away", "a lease cannot be had without the store; leave %q out", "away "+t.Away.String())
	}
	p.Away = t.Away
	if t.Deadline != 0 {
		if err := checkPeriod("deadline", t.Deadline); err != nil {
			return err
		}
		p.Deadline = t.Deadline.Microseconds()
	}
	return nil
}

// awaySuffix writes them at the end of a notation.
func (t Tail) awaySuffix() (s string) {
	if t.Away != AwayDeny {
		s = " away " + t.Away.String()
	}
	if t.Deadline != 0 {
		s += " deadline " + formatPeriod(t.Deadline)
	}
	return s
}

// awayOption takes the option away from a notation.
func (n *notation) awayOption() (Away, error) {
	f, ok := n.options["away"]
	if !ok {
		return AwayDeny, nil
	}
	delete(n.options, "away")
	for a := AwayDeny; a <= AwayAllow; a++ {
		if f.text == a.String() {
			return a, nil
		}
	}
	return AwayDeny, n.fail("away", f.at, "must be deny, share or allow")
}

// within returns how long the store may take to answer ops: for what takes or checks, the shortest
// deadline of its limits. 0 is no deadline.
func (l *Limiter) within(ops []law.Op) time.Duration {
	own, plain := int64(0), true
	for i := range ops {
		op := &ops[i]
		if op.Verb != law.Take && op.Verb != law.Check {
			return l.timeout
		}
		plain = plain && op.Alone() && !op.Params.Leased
		if d := op.Params.Deadline; d > 0 && (own == 0 || d < own) {
			own = d
		}
	}
	switch {
	case own > 0:
		return time.Duration(own) * time.Microsecond
	case plain:
		return l.soonest()
	}
	return l.timeout // what the store must know later is not answered by anything else
}

// soonest returns how long a decision may take whose limits do not say.
func (l *Limiter) soonest() time.Duration {
	if l.deadline != nil {
		if d := l.deadline.Deadline(); d > 0 {
			return d
		}
	}
	return l.timeout
}
