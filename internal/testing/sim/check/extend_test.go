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
func (b *book) extend(at int64, total, charged string, options ...option) int {
	return b.addCall(at, history.Extend, total, append([]option{idem("x"), func(_ *history.Call, r *history.Return) {
		r.Charged = []string{charged}
	}}, options...)...)
}

// unknownAnswer turns an answer into an unknown outcome.
func unknownAnswer(_ *history.Call, r *history.Return) {
	r.Outcome, r.At, r.Charged, r.Until = history.Unknown, 0, nil, 4000
}

var extendCases = []tamperCase{
	{"an extension beyond the bound", "bound", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "3", idem("x"))
		id := b.extend(2, "4", "4")
		b.take(3, "1")
		return b, func() { b.calls[id].Charges[0].Cost, b.rets[id].Charged[0] = "5", "5" }
	}},
	{"an extension charged twice", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		b.extend(2, "2", "2")
		id := b.extend(3, "2", "2", replay)
		return b, func() { b.rets[id].Replayed = false }
	}},
	{"an extension that was never charged", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		first := b.extend(2, "2", "2", unknownAnswer)
		b.extend(5, "2", "2", replay)
		return b, func() { b.rets[first].Outcome = history.Nothing }
	}},
	{"an extension of nothing", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		id := b.take(1, "1", idem("x"))
		b.extend(2, "2", "2")
		return b, func() { b.rets[id].Outcome = history.Nothing }
	}},
	{"an extension after the settlement", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		id := b.take(1, "1", idem("x"))
		b.addFollowUp(2, history.Settle, id, actual("1"))
		late := b.extend(3, "2", "2", outcome(history.Nothing))
		return b, func() { b.rets[late].Outcome = history.Admitted }
	}},
	{"an extension that says too little", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.extend(2, "2.5", "2.5")
		return b, func() { b.rets[id].Charged[0] = "2" }
	}},
	{"a refused extension that says too much", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.extend(2, "6", "1", refused(day-2))
		return b, func() { b.rets[id].Charged[0] = "6" }
	}},
	{"an extension refused, although it fits", "refusal", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.extend(2, "5.1", "1", refused(day-2))
		return b, func() { b.calls[id].Charges[0].Cost = "5" }
	}},
	{"an extension refused, although it was charged", "extended", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		b.extend(2, "2", "2")
		b.take(3, "3")
		id := b.extend(4, "2", "2", replay)
		return b, func() { b.rets[id].Outcome, b.rets[id].Replayed = history.Refused, false }
	}},
	{"a refusal for a lost extension", "refusal", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		id := b.extend(2, "4", "", unknownAnswer)
		b.take(5, "2", refused(day-5))
		return b, func() { b.rets[id].Outcome = history.Nothing }
	}},
	{"an extension that is not recorded", "recorded", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		b.extend(2, "2.5", "2.5")
		s := b.state(3, "2.5")
		return b, func() { s.Used = "1" }
	}},
	{"an extension charged in full", "settled", func() (*book, func()) {
		b := newBook(fixed("5", day))
		b.take(1, "1", idem("x"))
		b.extend(2, "2", "2")
		s := b.state(3, "2")
		return b, func() { s.Used = "3" }
	}},
	{"more given back than was extended", "once", func() (*book, func()) {
		b := newBook(fixed("5", day))
		id := b.take(1, "1", idem("x"))
		b.extend(2, "4", "4")
		settle := b.addFollowUp(3, history.Settle, id, actual("0.5"), corrected("3.5"))
		b.state(4, "0.5")
		return b, func() { b.rets[settle].Corrected[0] = "4" }
	}},
	{"a log that keeps an extended request", "refusal", func() (*book, func()) {
		l := fixed("5", 10*second)
		l.Algorithm = history.SlidingLog
		b := newBook(l)
		b.take(1, "3", idem("x"))
		id := b.extend(8*second, "4", "4")
		b.take(12*second, "2", refused(6*second))
		return b, func() { b.rets[id].Outcome, b.rets[id].Charged[0] = history.Refused, "3" }
	}},
}

// goOn extends what was taken under an id, or settles it.
func (p *player) goOn(ctx context.Context, id, key, cost string) {
	once := p.l.Once(id, time.Hour)
	for range p.rnd.IntN(3) {
		n, _ := new(big.Rat).SetString(cost)
		total := strings.TrimSuffix(n.Add(n, big.NewRat(p.rnd.Int64N(30), 10)).FloatString(3), ".000")
		c := p.call(history.Extend, key, total)
		c.Idem, c.Life = id, hour
		e, err := once.Extend(ctx, p.charge(key, headgate.MustCost(total)))
		r := p.ret(c, &e.Decision, err)
		for _, charged := range e.Charged {
			r.Charged = append(r.Charged, charged.String())
		}
	}
	if p.rnd.IntN(3) > 0 {
		return
	}
	c := p.call(history.Settle, key, cost)
	c.Idem, c.Actual = id, []string{[]string{"0", "0.5", "2", "4"}[p.rnd.IntN(4)]}
	settled := p.charge(key, actualCost(c.Actual[0]))
	by, err := once.Settle(ctx, settled)
	r := p.ret(c, nil, err)
	for _, b := range by {
		r.Corrected = append(r.Corrected, b.String())
	}
}
