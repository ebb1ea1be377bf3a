package law

// A request with an ID can be extended: what it charges grows while its work goes on, and
// is settled in the end as one charge. Of a charge to buckets and windows a cell remembers two
// parts, each with the state that it made, by which the return rule says how much of it can be
// given back: the last extension, and what was charged before. An earlier extension becomes a
// part of what was charged first, and is given back as if it had been charged by then. That
// gives back no more than its own time would, since what has drained since then counts against
// it. In a log the charge has one entry: an extension moves it to the present.

// applyExtend charges what the ops cost more than was charged under their ID, all or
// none of it. An op whose receipt has its cost already charges nothing. What is admitted is
// remembered for another TTL, on all cells of the request.
func applyExtend(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	known := make([]Receipt, len(ops))
	for i := range ops {
		a, ok := records[i].known(ops[i].ID, ops[i].clock(clock))
		if !ok {
			FailAll(outs, ErrUnknownID)
			return
		}
		if a.Settled != Unsettled {
			FailAll(outs, ErrSettled)
			return
		}
		if a.Outcome.State.Unit != ops[i].Params.Unit { // the costs are in other credits
			FailAll(outs, ErrReused)
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
			outs[i].Clock, outs[i].RetryAt, outs[i].Replayed = op.clock(clock), 0, true
			continue
		}
		op.Verb, op.extends, op.Cost = Take, true, op.Cost-known[i].Cost
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
			// A window drains at its end only, so the level of the first charge can have the earlier extension added.
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
