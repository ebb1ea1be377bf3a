package check

import (
	"github.com/headgate/headgate/internal/history"
)

// final checks what the store says of the cell after the run: no less is in use than was
// surely charged and has not drained (recorded), and no more than can have been (settled).
func (t *tracker) final(s *state, low, high num) {
	if t.trusted < forever {
		return
	}
	c := t.c
	for ; t.begun < len(t.unknown); t.begun++ {
		t.pending = t.pending.plus(t.unknown[t.begun].cost)
	}
	for ; t.latest < len(t.late); t.latest++ {
		t.giveBack(t.late[t.latest])
		high = t.high.used()
	}
	high = high.plus(t.pending)
	if s.Used != "" {
		n, _ := history.Number(s.Used) // it is valid
		used := c.family.count(n)      // it may be finer than what is counted
		switch {
		case used.plus(c.family.least()).less(low) && !t.lowOff:
			t.m.found = append(t.m.found, Violation{"recorded", []int{s.event}, c.name() + ": the store says that " +
				s.Used + " is in use, at least " + c.family.text(low) + " was charged and has not drained"})
		case high.plus(c.family.least()).less(used):
			t.m.found = append(t.m.found, Violation{"settled", []int{s.event}, c.name() + ": the store says that " +
				s.Used + " is in use, at most " + c.family.text(high) + " can have been charged"})
		}
	}
	if t.r.shape == logged && s.Entries != nil {
		t.entriesOf(s)
	}
}

// entriesOf compares the log of a cell with what was admitted.
func (t *tracker) entriesOf(s *state) {
	type row struct {
		at   int64
		cost num
	}
	there := map[row]int{}
	for _, e := range s.Entries {
		n, _ := history.Number(e.Cost)
		there[row{e.At, t.c.family.count(n)}]++
	}
	excess := len(s.Entries)
	for _, e := range t.c.entries {
		if !e.sure() || e.ret.At+t.r.period <= s.At {
			continue
		}
		corrected := len(e.fixes) > 0 || len(e.more) > 0 || e.Verb == history.Extend
		if at := (row{e.ret.At, e.cost}); there[at] > 0 {
			there[at]--
			excess--
		} else if !corrected && !e.lossy && !t.lowOff && !t.resetSince(e) {
			t.m.violation("recorded", []*ask{e.ask}, "%s: what was admitted at %d is not in the log",
				t.c.name(), e.ret.At)
		} else if corrected {
			excess--
		}
	}
	if excess > len(t.unknown) {
		t.m.found = append(t.m.found, Violation{"settled", []int{s.event}, t.c.name() +
			": the log has more entries than were or can have been admitted"})
	}
}

// resetSince reports whether the cell may have been reset after a charge.
func (t *tracker) resetSince(e *entry) bool {
	for _, o := range t.c.others {
		if o.Verb == history.Reset && o.outcome() != history.Nothing && o.until() >= e.from {
			return true
		}
	}
	return false
}

// missing reports cells of which the store says nothing after the run, although something
// must be in use. If one cell is told of, all are.
func (m *model) missing() {
	var last *history.State
	for i := range m.h.Events {
		if s := m.h.Events[i].State; s != nil && (last == nil || s.At > last.At) {
			last = s
		}
	}
	if last == nil {
		return
	}
	for _, c := range m.cells {
		if len(c.states) == 0 && c.family.versions != nil {
			s := history.State{
				Limit: c.family.limits[0].Name, Version: c.family.limits[0].Version, Key: c.key, Used: "0", At: last.At,
			}
			if rules := c.rules(); len(rules) > 0 {
				s.Version = rules[0].limit.Version
			}
			c.states = append(c.states, state{&s, len(m.h.Events) - 1})
		}
	}
}
