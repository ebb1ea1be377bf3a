package headgate

import (
	"time"

	"github.com/headgate/headgate/law"
)

// SlidingLog remembers every admitted request until it is Period old, and
// admits while their costs sum up to no more than Amount: the exact sliding
// window, at the price of a row for each. With History, attempts are kept for
// that long, the refused ones too, each with its transaction number.
//
//	sliding-log 5/1m history 30d block 15m
type SlidingLog struct {
	Amount  Cost
	Period  time.Duration // at least a microsecond
	History time.Duration // how long attempts are kept to be looked at; zero: only while they count
	Tail
}

func parseSlidingLog(n *notation) (Algorithm, error) {
	if err := n.needPeriod(); err != nil {
		return nil, err
	}
	history, err := n.periodOption("history")
	return SlidingLog{Amount: n.amount, Period: n.period, History: history, Tail: n.Tail}, err
}

// String returns the canonical notation.
func (a SlidingLog) String() string {
	s := "sliding-log " + a.Amount.String() + "/" + formatPeriod(a.Period)
	if a.History != 0 {
		s += " history " + formatPeriod(a.History)
	}
	return s + a.suffix()
}

func (a SlidingLog) compile() (law.Params, *calendar, error) {
	p, err := compileCount(law.Params{Kind: law.Log}, a.Amount, "period", a.Period, a.Tail)
	if err == nil && a.History != 0 {
		p.History, err = microsOf("history", a.History)
	}
	return p, nil, err
}

func (a SlidingLog) bound() Bound {
	long := "in any " + wordPeriod(a.Period)
	return Bound{period: a.Period, long: long, intent: a.Amount.String() + " pass " + long +
		" (what passed counts until it is exactly that old)"}
}

// Concurrency admits while the costs of the leases that are held sum up to no
// more than Amount. They are acquired and released, see [Limiter.Acquire] and
// [Limiter.WithLease]; Take and Wait refuse it. A lease whose holder does not renew it
// ends after TTL, so that a crash frees it.
//
//	concurrency 10 ttl 30s
type Concurrency struct {
	Amount Cost
	TTL    time.Duration // at least a microsecond
	Tail
}

func parseConcurrency(n *notation) (Algorithm, error) {
	if n.hasPeriod {
		return nil, n.fail("period", n.periodAt, "concurrency has none: write concurrency AMOUNT ttl PERIOD")
	}
	ttl, err := n.periodOption("ttl")
	if err == nil && ttl == 0 {
		err = n.fail("ttl", len(n.text), "is missing: write concurrency AMOUNT ttl PERIOD")
	}
	return Concurrency{Amount: n.amount, TTL: ttl, Tail: n.Tail}, err
}

// String returns the canonical notation.
func (a Concurrency) String() string {
	return "concurrency " + a.Amount.String() + " ttl " + formatPeriod(a.TTL) + a.suffix()
}

func (a Concurrency) compile() (law.Params, *calendar, error) {
	p, err := compileCount(law.Params{Kind: law.Log, Leased: true}, a.Amount, "ttl", a.TTL, a.Tail)
	return p, nil, err
}

func (a Concurrency) bound() Bound {
	return Bound{period: a.TTL, long: "at the same time", intent: a.Amount.String() +
		" be held at the same time; one that is not renewed ends after " + formatPeriod(a.TTL)}
}
