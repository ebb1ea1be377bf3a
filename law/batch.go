package law

import "slices"

// Apply applies a batch: its groups one after another, in order, each all or nothing. records[i] is the cell of ops[i],
// the same pointer wherever the cell is the same; the caller holds the locks. clock is the store's, read after the
// locks were taken; an op's own Now overrides it.
//
// Each invalid group fails alone, with Outcome.Err. All groups fail if the clock is above Max, such as one that counts
// nanoseconds: no cell would be empty later than that. Where an outcome or a receipt is about an entry in Record.Add,
// its EntryNumber is less than 0: see [Record.SetEntryNumber].
func Apply(ops []Op, outs []Outcome, clock int64, records []*Record) {
	for i, j := 0, GroupEnd(ops, 0); i < len(ops); i, j = j, GroupEnd(ops, j) {
		group := ops[i:j]
		err := ValidGroup(group)
		if clock > Max {
			err = Invalid("time", "the clock of the store shows %d, which is out of range", clock)
		}
		if err != nil {
			FailAll(outs[i:j], err)
		} else {
			applyGroup(group, outs[i:j], clock, records[i:j], i+1)
		}
	}
}

// GroupEnd returns the end of the group that starts at i.
func GroupEnd(ops []Op, i int) int {
	j := i + 1
	for j < len(ops) && ops[j].Group == ops[i].Group {
		j++
	}
	return j
}

// AlternativeEnd returns the end of the alternative that starts at i, or of the group if it has none.
func AlternativeEnd(ops []Op, i int) int {
	j := i + 1
	for j < len(ops) && ops[j].Group == ops[i].Group && ops[j].Alternative == ops[i].Alternative {
		j++
	}
	return j
}

// applyGroup applies the ops of one valid request, by their verb.
func applyGroup(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	if AlternativeEnd(ops, 0) < len(ops) {
		applyFirst(ops, outs, clock, records, group)
		return
	}
	switch ops[0].Verb {
	case Take:
		if ops[0].ID != "" {
			applyOnce(ops, outs, clock, records, group)
			return
		}
		fallthrough
	case Check:
		applyAsked(ops, outs, clock, records, group)
		return
	case Settle:
		applySettle(ops, outs, clock, records)
		return
	case Extend:
		applyExtend(ops, outs, clock, records, group)
		return
	}
	for i := range ops { // these verbs apply to each op by itself
		op, r := &ops[i], records[i]
		switch op.Verb {
		case Return:
			outs[i] = r.correct(op, op.clock(clock))
		case Block:
			outs[i] = r.block(op, op.clock(clock))
		case Reset:
			outs[i] = r.reset(op, op.clock(clock))
		case Renew:
			outs[i] = r.renew(op, op.clock(clock))
		}
	}
}

// applyFirst charges the first alternative of a request that passes as a whole. One that does not pass leaves nothing,
// as if it had been checked, but for the last: the refusal of that one is the refusal of the request. An ID that was
// admitted with one of the alternatives is applied to that one again.
func applyFirst(ops []Op, outs []Outcome, clock int64, records []*Record, group int) {
	clear(outs)
	i, j, err := knownAlternative(ops, clock, records)
	if err != nil {
		FailAll(outs, err)
		return
	}
	if j == 0 { // no alternative is known
		for j = AlternativeEnd(ops, i); j < len(ops); i, j = j, AlternativeEnd(ops, j) {
			checks := slices.Clone(ops[i:j])
			for k := range checks {
				checks[k].Verb = Check
			}
			admitted := applyAsked(checks, outs[i:j], clock, records[i:j], group)
			if outs[i].Stale || admitted && ops[i].Verb == Check {
				return
			}
			if admitted {
				break
			}
		}
	}
	if ops[i].ID == "" {
		applyAsked(ops[i:j], outs[i:j], clock, records[i:j], group)
		return
	}
	applyOnce(ops[i:j], outs[i:j], clock, records[i:j], group)
	if err := outs[i].Err; err != nil {
		FailAll(outs, err)
	}
}

// applyAsked decides a request that takes or checks, and reports whether it was admitted.
func applyAsked(ops []Op, outs []Outcome, clock int64, records []*Record, group int) bool {
	admitted, stale := true, false
	verdicts := make([]Verdict, len(ops))
	for i := range ops {
		op, r := &ops[i], records[i]
		if r.group != group {
			r.group, r.pending, r.tent, r.tentLog = group, 0, r.State, r.ledger()
		}
		d := Decide(r.tent, op, op.clock(clock), r.pending, r.tentLog)
		if d.Clear {
			r.tentLog = noLog{}
		}
		stale = stale || d.Outcome.Stale
		if d.Outcome.Granted == op.Count || op.Partial && d.Outcome.Granted > 0 {
			r.pending += d.Outcome.Granted * op.Cost
			r.tent = d.Outcome.State
		} else {
			admitted = false
		}
		verdicts[i], outs[i] = d, d.Outcome
	}
	if stale {
		for i := range outs {
			records[i].group = 0
			outs[i] = Outcome{State: records[i].State, Clock: verdicts[i].Now, Stale: true}
		}
		return false
	}
	if admitted && ops[0].Deferred {
		admitted = late(ops, outs, verdicts, records)
	}
	for i := range ops {
		first := records[i].group == group
		records[i].group = 0
		records[i].settle(&ops[i], &outs[i], &verdicts[i], admitted, first)
	}
	return admitted
}

// settle writes the result of a request into the cell of one of its ops, and into the op's outcome. first: the op is
// the request's first on this cell. The Base of a later one contains the charges before it, which a refusal must not
// leave.
func (r *Record) settle(op *Op, out *Outcome, d *Verdict, admitted, first bool) {
	if !admitted && out.Granted == op.Count {
		out.RetryAt = 0
	}
	if op.Verb == Check {
		out.State = r.State
		return
	}
	if d.Moved || admitted {
		r.Dirty = true
		if d.Clear {
			r.clear()
		}
		if d.Carry > 0 {
			r.Add = append(r.Add, Entry{
				ID: Carried, At: d.Now, ExpiresAt: d.Base.EmptyAt,
				KeepUntil: d.Now + max(op.Params.Step, op.Params.History), Cost: d.Carry, Granted: true,
			})
		}
	}
	blocked := r.State.BlockedUntil
	switch {
	case admitted:
		r.State = out.State
	case d.Moved && first:
		r.State = d.Base
	case d.Moved:
		r.State.Kind, r.State.Unit, r.State.Step = d.Base.Kind, d.Base.Unit, d.Base.Step
		r.State.BlockedUntil = d.Base.BlockedUntil
	}
	if r.State.BlockedUntil != blocked {
		r.Reason = "" // a refusal has blocked the cell, without a reason for people
	}
	out.State = r.State
	if op.Params.Kind == Log && (admitted || op.Params.History > 0) {
		cost := op.Count * op.Cost
		if admitted {
			cost = out.Granted * op.Cost
		}
		r.Add = append(r.Add, op.entry(d.Now, cost, admitted))
		out.EntryNumber = -int64(len(r.Add))
	}
}

// block sets or lifts the block of a cell.
func (r *Record) block(op *Op, clock int64) Outcome {
	r.Dirty = true
	if r.State.Kind == 0 {
		r.State.Kind, r.State.Unit, r.State.Step = op.Params.Kind, op.Params.Unit, op.Params.Step
	}
	r.State.BlockedUntil, r.Reason = 0, ""
	if op.TTL > 0 {
		r.State.BlockedUntil = max(clock, r.State.At) + op.TTL
		r.Reason = op.Reason
	}
	return Outcome{Granted: op.Count, State: r.State, Clock: clock, RetryAt: r.State.BlockedUntil}
}

// reset makes a cell fresh, ends its log and forgets its receipts. Outcome.Granted is 1 if it was not fresh before.
func (r *Record) reset(op *Op, clock int64) Outcome {
	out := Outcome{Clock: clock}
	if r.State.Kind != 0 {
		out.Granted = 1
		r.Gone, r.Dirty = true, true
	}
	r.clear()
	r.Forget, r.Admit = true, nil
	r.State, r.Reason, r.group = State{}, "", 0
	return out
}

// clear ends all entries of the log: they count no more.
func (r *Record) clear() {
	r.Clear = true
	r.Renew, r.Lower = nil, nil
	for i := range r.Add {
		r.Add[i].ExpiresAt = 0
	}
}

// clock returns the time by which op is decided: its test time, or else the store's.
func (op *Op) clock(store int64) int64 {
	if op.Now != 0 {
		return op.Now
	}
	return store
}
