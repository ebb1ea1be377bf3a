package check

import "github.com/headgate/headgate/internal/testing/history"

// decided returns the version by which a charge of a call was decided: that of the call, unless the
// answer says another. known says whether there is an answer about the charge.
func (f *family) decided(a *ask, charge int) (r *rule, known bool) {
	r = f.versions[a.Charges[charge].Version]
	if charge >= len(a.ret.Each) {
		return r, false
	}
	each := &a.ret.Each[charge]
	if other, ok := f.versions[each.Version]; ok {
		return other, true
	}
	return r, each.Remaining >= 0 || each.RetryAfter != 0 || len(a.Charges) == 1
}

// end returns the time of the store's clock at which another version takes the place of this one, for calls that know
// it; 0: none does.
func (r *rule) end() int64 {
	if next := r.of.versions[r.limit.Version+1]; next != nil && next.limit.Key == "" && r.limit.Key == "" {
		return next.limit.From
	}
	return r.limit.Until
}

// answered reports whether a call was admitted or refused, and not answered as before.
func (a *ask) answered() bool {
	return asks(a.Verb) && (a.outcome() == history.Admitted || a.outcome() == history.Refused) && !a.ret.Replayed
}

// ends checks which version has decided, where versions follow each other at a time of the store's
// clock. Calls on several charges return the time of one of them only.
func (m *model) ends() {
	for _, a := range m.order {
		if len(a.Charges) != 1 || len(a.parts) != 1 || !a.answered() || a.ret.At == 0 {
			continue
		}
		e := a.parts[0]
		by, at := e.rule.limit, a.ret.At
		if at < by.From {
			m.violation("ends", e.cell, a.events, "version %d, which is in force from %d, has decided at %d",
				by.Version, by.From, at)
		}
		next := e.rule.of.versions[by.Version+1]
		// Else the call knows no later one.
		if next != nil && a.Charges[0].Version > by.Version && next.limit.From > 0 && at >= next.limit.From {
			m.violation("ends", e.cell, a.events, "version %d has decided at %d, though %d is in force from %d",
				by.Version, at, by.Version+1, next.limit.From)
		}
	}
}
