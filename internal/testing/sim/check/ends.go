package check

import "github.com/headgate/headgate/internal/testing/history"

// versionOf returns the version that decided about a charge of a call: the one that the call names, unless the answer
// names another. known says whether the answer tells.
func (f *family) versionOf(a *call, charge int) (r *rule, known bool) {
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

// end returns the time of the store's clock at which another version replaces this one, for calls that know the other
// one; 0: none does.
func (r *rule) end() int64 {
	if next := r.family.versions[r.limit.Version+1]; next != nil && next.limit.Key == "" && r.limit.Key == "" {
		return next.limit.From
	}
	return r.limit.Until
}

// decidedAnew reports whether a call was admitted or refused, and the answer is no replay.
func (a *call) decidedAnew() bool {
	return hasDecision(a.Verb) && (a.outcome() == history.Admitted || a.outcome() == history.Refused) && !a.ret.Replayed
}

// ends checks which version has decided, if versions replace each other at a time of the store's clock. It skips calls
// with several charges, which return the time of one charge only.
func (m *model) ends() {
	for _, a := range m.calls {
		if len(a.Charges) != 1 || len(a.entries) != 1 || !a.decidedAnew() || a.ret.At == 0 {
			continue
		}
		e := a.entries[0]
		version, at := e.rule.limit, a.ret.At
		if at < version.From {
			m.report("ends", e.cell, a.events, "version %d, which is in force from %d, has decided at %d",
				version.Version, version.From, at)
		}
		next := e.rule.family.versions[version.Version+1]
		// Otherwise the call knows no later version.
		if next != nil && a.Charges[0].Version > version.Version && next.limit.From > 0 && at >= next.limit.From {
			m.report("ends", e.cell, a.events, "version %d has decided at %d, though %d is in force from %d",
				version.Version, at, version.Version+1, next.limit.From)
		}
	}
}
