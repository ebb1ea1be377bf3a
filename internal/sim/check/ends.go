package check

import "github.com/headgate/headgate/internal/history"

// decided returns the version by which a charge of a call was decided: that of the call, unless the
// answer says another. Told says whether there is an answer about the charge.
func (f *family) decided(a *ask, charge int) (r *rule, told bool) {
	r = f.versions[a.Charges[charge].Version]
	if a.ret == nil || charge >= len(a.ret.Each) {
		return r, false
	}
	each := &a.ret.Each[charge]
	if other, ok := f.versions[each.Version]; ok {
		return other, true
	}
	return r, each.Remaining >= 0 || each.RetryAfter != 0 || len(a.Charges) == 1
}

// end is the time of the store's clock at which another version takes the place of this one, for calls that
// know it; 0: none does.
func (r *rule) end(f *family) int64 {
	if next := f.versions[r.limit.Version+1]; next != nil && next.limit.Key == "" && r.limit.Key == "" {
		return next.limit.From
	}
	return r.limit.Until
}

// ends checks which version has decided, where versions follow each other at a time of the store's
// clock. Calls on several charges tell the time of one of them only.
func (m *model) ends() {
	for _, a := range m.order {
		if len(a.Charges) != 1 || !asks(a.Verb) || a.ret == nil || a.ret.At == 0 || a.ret.Replayed ||
			a.ret.Outcome != history.Admitted && a.ret.Outcome != history.Refused {
			continue
		}
		f := m.families[a.Charges[0].Limit]
		if f == nil || f.versions == nil || f.versions[a.Charges[0].Version] == nil {
			continue
		}
		r, _ := f.decided(a, 0)
		by := r.limit
		if from := by.From; a.ret.At < from {
			m.violation("ends", []*ask{a}, "%s: version %d, which is in force from %d, has decided at %d", by.Name,
				by.Version, from, a.ret.At)
		}
		next := f.versions[by.Version+1]
		if next == nil || next.limit.From == 0 || a.Charges[0].Version <= by.Version { // the call knows no later one
			continue
		}
		if from := next.limit.From; a.ret.At >= from {
			m.violation("ends", []*ask{a}, "%s: version %d has decided at %d, though %d is in force from %d", by.Name,
				by.Version, a.ret.At, by.Version+1, from)
		}
	}
}
