package law

// A request with an ID can be extended: what it charges grows while its work goes on, and
// is settled in the end as one charge. Of a charge to buckets and windows a cell remembers two
// parts, each with the state that it made, by which the return rule says how much of it can be
// given back: the last extension, and what was charged before. An earlier extension becomes a
// part of what was charged first, and is given back as if it had been charged by then. That
// gives back no more than its own time would, since what has drained since then counts against
// it. In a log the charge has one entry: an extension moves it to the present.

// Extension is the part of a charge that was charged last, by an op of verb Extend to a bucket
// or to windows. The zero Extension is none.
type Extension struct {
	Cost                int64 // credits
	Level, At, Returned int64 // what it made of the cell: see [Op]
}

// Charged returns the numbers that stores remember of what was charged: those of the first
// charge, and after them the four of the extension, in the order of its fields, if there is
// one. They are separated by spaces.
func (a *Receipt) Charged() string {
	s := a.Outcome.Numbers().String()
	if e := &a.Extension; e.Cost != 0 {
		s += " " + join([]int64{e.Cost, e.Level, e.At, e.Returned})
	}
	return s
}

// SetCharged sets what Charged returns.
func (a *Receipt) SetCharged(s string) error {
	first, last := s, ""
	if i := afterFields(s, Width); i < len(s) {
		first, last = s[:i], s[i:]
	}
	n, err := ParseNumbers(first)
	if err != nil {
		return err
	}
	a.Outcome, a.Extension = n.Outcome(), Extension{}
	if last == "" {
		return nil
	}
	var e [4]int64
	if err := split(last, e[:]); err != nil {
		return err
	}
	a.Extension = Extension{Cost: e[0], Level: e[1], At: e[2], Returned: e[3]}
	return nil
}

// afterFields returns where the first n of the numbers in s end.
func afterFields(s string, n int) int {
	for i := range s {
		if s[i] == ' ' {
			if n--; n == 0 {
				return i
			}
		}
	}
	return len(s)
}

// applyExtend charges what the ops cost more than was charged under their ID, all or
// none of it. Which have charged as much already charge nothing. What is admitted is
// remembered for another TTL, on all cells of the request.
func applyExtend(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	known := make([]Receipt, len(ops))
	for i := range ops {
		a, ok := records[i].known(ops[i].ID, ops[i].clock(clock))
		if !ok {
			failAll(outs, ErrUnknownID)
			return
		}
		if a.Settled != Unsettled {
			failAll(outs, ErrSettled)
			return
		}
		known[i] = a
	}
	var rest []int
	var more []Op
	var cells []*Record
	for i := range ops {
		op := ops[i]
		if op.Cost <= known[i].Cost {
			outs[i] = known[i].Outcome
			outs[i].Clock, outs[i].Replayed = op.clock(clock), true
			continue
		}
		op.Verb, op.Cost = Take, op.Cost-known[i].Cost
		rest, more, cells = append(rest, i), append(more, op), append(cells, records[i])
	}
	charged := make([]Outcome, len(rest))
	admitted := len(rest) == 0 || applyAsked(more, charged, clock, cells, group)
	for k, i := range rest {
		outs[i] = charged[k]
		if admitted {
			cells[k].extend(&known[i], &more[k], &charged[k])
		}
	}
	for i := range ops {
		if !outs[i].Stale {
			outs[i].Granted = known[i].Cost
		}
		if admitted {
			a := known[i]
			a.KeepUntil = max(a.KeepUntil, ops[i].clock(clock)+ops[i].TTL)
			records[i].Admit = append(records[i].Admit, a)
		}
	}
}

// extend makes the charge of op, with the outcome out, the last part of what was charged.
// Parts by different rules cannot be corrected by either: such a receipt has no terms.
func (r *Record) extend(a *Receipt, op *Op, out *Outcome) {
	a.Cost += op.Cost
	if a.Terms != op.Params.Terms() {
		a.Terms = Terms{}
	}
	if op.Params.Kind != Log {
		s := &out.State
		if op.Params.window() {
			// Nothing drains before its end, so what was charged first may seem to have made as high a level.
			a.Outcome.State.Level = min(a.Outcome.State.Level+a.Extension.Cost, Max)
		}
		a.Extension = Extension{Cost: op.Cost, Level: s.Level, At: s.At, Returned: s.Prev}
		return
	}
	if credits, expires := r.ledger().Entry(a.Outcome.EntryNumber); expires > out.State.At {
		r.lower(a.Outcome.EntryNumber, credits, expires)
		r.Add[-out.EntryNumber-1].Cost += credits
	}
	a.Outcome.EntryNumber = out.EntryNumber
}

// correctAll makes the cost of op that of a charge: what is unused is given back by the last
// extension first, and what was used in addition is charged to it.
func (r *Record) correctAll(op *Op, a *Receipt, clock int64) Outcome {
	unused := a.Cost - max(op.Cost, 0)
	back := *op
	back.Count = 1
	last := a.Extension
	if last.Cost == 0 {
		back.Cost = unused
		back.of(&a.Outcome)
		return r.correct(&back, clock)
	}
	back.Cost = min(unused, last.Cost)
	back.Level, back.At, back.Returned = last.Level, last.At, last.Returned
	before := r.State.Prev
	out := r.correct(&back, clock)
	if unused <= last.Cost {
		return out
	}
	given := out.Granted
	back.Cost = unused - last.Cost
	back.of(&a.Outcome)
	back.Returned += out.State.Prev - before // it was charged later, and takes nothing from what was charged first
	out = r.correct(&back, clock)
	out.Granted += given
	return out
}
