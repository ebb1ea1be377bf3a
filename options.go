package headgate

import (
	"strconv"
	"time"

	"github.com/headgate/headgate/law"
)

// How the options of a Tail are written, of limits that refill and of others.
const (
	plainOptions  = "[block PERIOD] [away share|allow] [deadline PERIOD] [scale N]"
	refillOptions = "[block PERIOD] [prefetch N|N%[/PERIOD]] [away share|allow] [deadline PERIOD] [scale N]"
)

// Tail are the options that every algorithm shares.
type Tail struct {
	// Block refuses a key for this long once it has been refused. Zero: not.
	Block time.Duration
	// Prefetch lets nodes take tokens up front. Zero: not.
	Prefetch Prefetch
	// Away says what is answered while the store cannot decide. Zero: an error.
	Away Away
	// Deadline is how long a decision may take. Zero: as long as the Limiter lets it, see
	// Config.Timeout. Of the limits of one request the shortest holds.
	Deadline time.Duration
	// Scale is how many digits after the point costs are counted in, from 4 to 9: 6 for money in
	// millionths. Zero: 3, thousandths, or as many as the limit's own amounts have, or fewer where these are
	// large. A limit that gets another scale starts to count in other steps: what was charged before can
	// then not be settled or cancelled.
	Scale uint8
}

// tail writes the options into p, or says what is wrong with it.
func (t Tail) tail(p *law.Params) error {
	if t.Scale != 0 && (t.Scale < minScale || t.Scale > maxExp) {
		return errScale(strconv.Itoa(int(t.Scale)))
	}
	p.Digits = max(t.Scale, digitsOf(p.Capacity, p.Unit))
	if t.Block != 0 {
		if err := checkPeriod("block", t.Block); err != nil {
			return err
		}
		p.Block = t.Block.Microseconds()
	}
	if err := t.checkAway(p); err != nil {
		return err
	}
	return t.Prefetch.compile(p)
}

// suffix writes the options at the end of a notation.
func (t Tail) suffix() string {
	s := ""
	if t.Block != 0 {
		s = " block " + formatPeriod(t.Block)
	}
	if t.Scale != 0 {
		s += " scale " + strconv.Itoa(int(t.Scale))
	}
	return s + t.Prefetch.suffix() + t.awaySuffix()
}

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
