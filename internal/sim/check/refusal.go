package check

import "github.com/headgate/headgate/internal/history"

// refusals reports the refusals that no charge of the call justifies.
func (m *model) refusals() {
	for _, a := range m.order {
		if !asks(a.Verb) || a.outcome() != history.Refused || a.via() == history.ViaRepeat || m.excused[a] {
			continue
		}
		if len(a.entries) == 0 {
			continue // it is broken
		}
		m.violation("refusal", []*ask{a}, "%s: refused at %d, although the cost fits on all that can have been charged",
			a.entries[0].cell.name(), a.at())
	}
}
