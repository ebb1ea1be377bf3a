package law

// A request with an ID can be extended: its charge grows while its work goes on, and is settled in the end as one
// charge. A cell of the bucket or window law remembers two parts of the charge: the last extension, and all that was
// charged before it. With each part it remembers the state after it, from which the return rule computes how much can
// be given back. An earlier extension is merged into the first part, as if it had been charged then. That never gives
// back more than its own time would, since the drain since the first charge counts against it. In a log the charge has
// one entry, and an extension moves that entry to the present.

// applyExtend charges the difference between the costs of ops and the credits already charged under their ID, all or
// none. An op whose receipt already has its cost charges nothing. If the request is admitted, all its cells remember
// the ID for another TTL.
func applyExtend(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	receipts := make([]Receipt, len(ops))
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
		if a.Outcome.State.Unit != ops[i].Params.Unit { // one credit was worth another cost then
			FailAll(outs, ErrReused)
			return
		}
		receipts[i] = a
	}
	var indexes []int // ops that charge additional credits
	var newOps []Op
	var newRecords []*Record
	for i := range ops {
		op := ops[i]
		if op.Cost <= receipts[i].Cost {
			outs[i] = receipts[i].Outcome
			outs[i].Clock, outs[i].RetryAt, outs[i].Replayed = op.clock(clock), 0, true
			continue
		}
		op.Verb, op.extends, op.Cost = Take, true, op.Cost-receipts[i].Cost
		indexes, newOps, newRecords = append(indexes, i), append(newOps, op), append(newRecords, records[i])
	}
	newOuts := make([]Outcome, len(newOps))
	admitted := len(newOps) == 0 || applyAsked(newOps, newOuts, clock, newRecords, group)
	for k, i := range indexes {
		outs[i] = newOuts[k]
		if admitted {
			newRecords[k].extend(&receipts[i], &newOps[k], &newOuts[k])
		}
	}
	for i := range ops {
		if !outs[i].Stale {
			outs[i].Granted = receipts[i].Cost
		}
		if admitted {
			a := receipts[i]
			a.KeepUntil = max(a.KeepUntil, ops[i].clock(clock)+ops[i].TTL)
			records[i].Admit = append(records[i].Admit, a)
		}
	}
}

// extend adds the charge of op, with the outcome out, to the receipt as its last part. In a log it moves the credits of
// the receipt's entry to the new entry. Parts that were charged under different terms cannot be corrected under either:
// such a receipt gets zero Terms.
func (r *Record) extend(a *Receipt, op *Op, out *Outcome) {
	a.Cost += op.Cost
	if a.Terms != op.Params.Terms() {
		a.Terms = Terms{}
	}
	if op.Params.Kind != Log {
		s := &out.State
		if op.Params.isFixedWindow() {
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
