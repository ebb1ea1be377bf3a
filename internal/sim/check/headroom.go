package check

import (
	"math/big"
	"strings"
)

// keep returns how much has to be free after a charge that names this headroom, rounded down.
func (r *rule) keep(text string) num {
	share, percent := strings.CutSuffix(text, "%")
	switch {
	case text == "":
		return num{}
	case !percent:
		return r.of.costs[text]
	}
	n := number(share)
	n.Mul(n, big.NewRat(1, 100)).Mul(n, new(big.Rat).SetInt(r.most.big()))
	return fromBig(new(big.Int).Quo(n.Num(), n.Denom()))
}

// need is how much has to be free before a charge for it to pass, at most: headroom is rounded
// up to what the limit counts.
func (e *entry) need() num {
	if !e.keep.positive() {
		return e.cost
	}
	return e.cost.plus(e.keep).plus(e.cell.family.least())
}

// headroom checks that an admission left its headroom: before is what was in use, at least.
func (t *tracker) headroom(e *entry, before num) {
	if e.keep.positive() && e.sure() && len(e.Charges) == 1 && !t.lowOff &&
		before.plus(e.cost).plus(e.keep).more(t.r.most) {
		t.m.violation("headroom", t.c, e.events, "admitted at %d with %s in use: it was to leave %s", e.ret.At, before,
			e.Charges[0].Keep)
	}
}
