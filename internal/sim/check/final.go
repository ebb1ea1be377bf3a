package check

// final checks what the store says of the cell after the run: no less is in use than was
// surely charged and has not drained (recorded), and no more than can have been (settled).
func (t *tracker) final(s *state, low, high num) {
	if t.trusted < forever {
		return
	}
	for ; t.begun < len(t.unknown); t.begun++ {
		t.pending = t.pending.plus(t.unknown[t.begun].cost)
	}
	for ; t.latest < len(t.late); t.latest++ {
		t.giveBack(t.late[t.latest])
		high = t.high.used()
	}
	high = high.plus(t.pending)
	least := t.c.family.least()
	switch used := t.c.family.count(number(s.Used)); { // it may be finer than what is counted
	case used.plus(least).less(low) && !t.lowOff:
		t.m.violation("recorded", t.c, []int{s.event},
			"the store says that %s is in use, at least %s was charged and has not drained", s.Used, low)
	case high.plus(least).less(used):
		t.m.violation("settled", t.c, []int{s.event},
			"the store says that %s is in use, at most %s can have been charged", s.Used, high)
	}
}
