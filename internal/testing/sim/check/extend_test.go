package check_test

import (
	"context"
	"math/big"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/history"
)

// extend adds a call that extends the id "x" to a total. Its answer says how much is charged in all.
func (b *builder) extend(at int64, total, charged string, options ...option) int {
	return b.addCall(at, history.Extend, total, append([]option{withID("x"), func(_ *history.Call, r *history.Return) {
		r.Charged = []string{charged}
	}}, options...)...)
}

// asUnknown turns an answer into an unknown outcome, of a call that was done by 4 microseconds if at all.
func asUnknown(_ *history.Call, r *history.Return) {
	r.Outcome, r.At, r.Charged, r.Until = history.Unknown, 0, nil, 4000
}

var extendCases = []tamperCase{
	{"an extension beyond the bound", "bound", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "3", withID("x"))
		id := b.extend(2, "4", "4")
		b.take(3, "1")
		return b, func() { b.calls[id].Charges[0].Cost, b.returns[id].Charged[0] = "5", "5" }
	}},
	{"an extension charged twice", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		b.extend(2, "2", "2")
		id := b.extend(3, "2", "2", asReplay)
		return b, func() { b.returns[id].Replayed = false }
	}},
	{"an extension that was never charged", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		extension := b.extend(2, "2", "2", asUnknown)
		b.extend(5, "2", "2", asReplay)
		return b, func() { b.returns[extension].Outcome = history.Nothing }
	}},
	{"an extension of nothing", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "1", withID("x"))
		b.extend(2, "2", "2")
		return b, func() { b.returns[id].Outcome = history.Nothing }
	}},
	{"an extension after the settlement", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "1", withID("x"))
		b.addFollowUp(2, history.Settle, id, withActual("1"))
		lateExtension := b.extend(3, "2", "2", withOutcome(history.Nothing))
		return b, func() { b.returns[lateExtension].Outcome = history.Admitted }
	}},
	{"an extension that says too little", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.extend(2, "2.5", "2.5")
		return b, func() { b.returns[id].Charged[0] = "2" }
	}},
	{"a refused extension that says too much", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.extend(2, "6", "1", withRefusal(day-2))
		return b, func() { b.returns[id].Charged[0] = "6" }
	}},
	{"an extension refused, although it fits", "refusal", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.extend(2, "5.1", "1", withRefusal(day-2))
		return b, func() { b.calls[id].Charges[0].Cost = "5" }
	}},
	{"an extension refused, although it was charged", "extended", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		b.extend(2, "2", "2")
		b.take(3, "3")
		id := b.extend(4, "2", "2", asReplay)
		return b, func() { b.returns[id].Outcome, b.returns[id].Replayed = history.Refused, false }
	}},
	{"a refusal for a lost extension", "refusal", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		id := b.extend(2, "4", "", asUnknown)
		b.take(5, "2", withRefusal(day-5))
		return b, func() { b.returns[id].Outcome = history.Nothing }
	}},
	{"an extension that is not recorded", "recorded", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		b.extend(2, "2.5", "2.5")
		s := b.addState(3, "2.5")
		return b, func() { s.Used = "1" }
	}},
	{"an extension charged in full", "settled", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		b.take(1, "1", withID("x"))
		b.extend(2, "2", "2")
		s := b.addState(3, "2")
		return b, func() { s.Used = "3" }
	}},
	{"more given back than was extended", "once", func() (*builder, func()) {
		b := newBuilder(fixedWindow("5", day))
		id := b.take(1, "1", withID("x"))
		b.extend(2, "4", "4")
		settle := b.addFollowUp(3, history.Settle, id, withActual("0.5"), withCorrected("3.5"))
		b.addState(4, "0.5")
		return b, func() { b.returns[settle].Corrected[0] = "4" }
	}},
	{"a log that keeps an extended request", "refusal", func() (*builder, func()) {
		l := fixedWindow("5", 10*second)
		l.Algorithm = history.SlidingLog
		b := newBuilder(l)
		b.take(1, "3", withID("x"))
		id := b.extend(8*second, "4", "4")
		b.take(12*second, "2", withRefusal(6*second))
		return b, func() { b.returns[id].Outcome, b.returns[id].Charged[0] = history.Refused, "3" }
	}},
}

// extendOrSettle extends the charges under an id up to twice, and settles them in one of three cases.
func (p *player) extendOrSettle(ctx context.Context, id, key, cost string) {
	once := p.limiter.Once(id, time.Hour)
	for range p.rng.IntN(3) {
		n, _ := new(big.Rat).SetString(cost)
		total := strings.TrimSuffix(n.Add(n, big.NewRat(p.rng.Int64N(30), 10)).FloatString(3), ".000")
		c := p.addCall(history.Extend, key, total)
		c.Idem, c.Life = id, hour
		e, err := once.Extend(ctx, p.charge(key, headgate.MustCost(total)))
		r := p.addReturn(c, &e.Decision, err)
		for _, charged := range e.Charged {
			r.Charged = append(r.Charged, charged.String())
		}
	}
	if p.rng.IntN(3) > 0 {
		return
	}
	c := p.addCall(history.Settle, key, cost)
	c.Idem, c.Actual = id, []string{[]string{"0", "0.5", "2", "4"}[p.rng.IntN(4)]}
	charge := p.charge(key, actualCost(c.Actual[0]))
	corrections, err := once.Settle(ctx, charge)
	r := p.addReturn(c, nil, err)
	for _, correction := range corrections {
		r.Corrected = append(r.Corrected, correction.String())
	}
}
