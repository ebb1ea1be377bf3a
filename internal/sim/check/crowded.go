package check

import (
	"cmp"
	"slices"

	"github.com/headgate/headgate/internal/history"
)

// crowded returns the entries of a cell whose calls were under way together with that of another charge: of a
// store that reads its clock early (history.Early) their times do not say who came first.
func crowded(c *cell) map[*entry]bool {
	var list []*entry
	for _, e := range c.entries {
		if out := e.outcome(); out == history.Admitted || out == history.Refused {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *entry) int { return cmp.Compare(a.from, b.from) })
	found := map[*entry]bool{}
	var last *entry // the charge before that was under way for longest
	for i, e := range list {
		found[e] = last != nil && e.from < last.to
		for j := i + 1; j < len(list) && list[j].from < e.to && !found[e]; j++ {
			found[e] = list[j].sure()
		}
		if e.sure() && (last == nil || e.to > last.to) {
			last = e
		}
	}
	return found
}
