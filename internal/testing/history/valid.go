package history

import (
	"fmt"
	"slices"
	"strings"
)

// maxMicros bounds times of the store's clock: no store can count beyond it.
const maxMicros = 1 << 53

// Valid returns an error for a return or a final state with impossible numbers. It does not check other events, nor
// the form of numbers: the recorder makes them.
func (e *Event) Valid() error {
	var times []int64
	var amounts []string
	if r := e.Return; r != nil {
		times, amounts = []int64{r.At, r.StartAt}, slices.Concat(r.Charged, r.Corrected)
		if slices.ContainsFunc(r.Each, func(f Figures) bool { return f.Remaining < -1 || f.RetryAfter < -1 }) {
			return fmt.Errorf("return %d: figures below 0", r.ID)
		}
	}
	if e.State != nil {
		times, amounts = []int64{e.State.At}, []string{e.State.Used}
	}
	if slices.ContainsFunc(times, func(at int64) bool { return at < 0 || at > maxMicros }) {
		return fmt.Errorf("a time below 0, or too late: %d", times)
	}
	if slices.ContainsFunc(amounts, func(text string) bool { return strings.HasPrefix(text, "-") }) {
		return fmt.Errorf("an amount below 0: %s", amounts)
	}
	return nil
}
