package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// rated is what TokenBucket, LeakyBucket and GCRA have in common: they make
// the same decisions in three vocabularies.
type rated struct {
	Amount Cost
	Period time.Duration
	Burst  Cost
	Tail
}

func (r rated) notation(name, burst string) string {
	return name + " " + r.Amount.String() + "/" + formatPer(r.Period) +
		" " + burst + " " + orAmount(r.Burst, r.Amount).String() + r.suffix()
}

// check says what is wrong with the values; burst is the field's name.
func (r rated) check(burst string) error {
	if err := checkAmount("amount", r.Amount); err != nil {
		return err
	}
	if err := checkPeriod("period", r.Period); err != nil {
		return err
	}
	if r.Burst.IsZero() {
		return nil
	}
	return checkAmount(burst, r.Burst)
}

func (r rated) compile(burst string) (law.Params, *calendar, error) {
	if err := r.check(burst); err != nil {
		return law.Params{}, nil, err
	}
	p, err := compileRate(r.Amount, r.Period, orAmount(r.Burst, r.Amount), r.Scale)
	if err != nil {
		return law.Params{}, nil, err
	}
	err = r.tail(&p)
	return p, nil, err
}

func (r rated) bound() Bound {
	burst, each := orAmount(r.Burst, r.Amount), wordPeriod(r.Period)
	b := Bound{period: r.Period, long: onePeriod(r.Period), amount: r.Amount}
	if b.intent = r.Amount.String() + " pass each " + each; burst != r.Amount {
		b.intent += ", " + burst.String() + " at once"
	}
	if r.Prefetch != (Prefetch{}) {
		b.lease = r.Prefetch.life()
	}
	return b
}
