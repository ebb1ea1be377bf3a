package law

// Split returns the outcome for one of the callers that share a Take, as if each had come alone, one after another. out
// is the outcome of the shared Take; rank is the caller's place in the order, from 0. If the refusal of a later caller
// changed the cell, such as by a block, the state in every caller's outcome shows it.
func Split(op *Op, out *Outcome, rank int64) Outcome {
	single := *out
	if rank >= out.Granted {
		single.Granted, single.EntryNumber = 0, 0
		return single
	}
	laterCredits := (out.Granted - 1 - rank) * op.Cost // granted to callers that came later
	single.Granted = 1
	// The last caller gets the time at which a cost of 1 fits, if the shared outcome has it.
	costOfOne := min(op.Params.Unit, op.Params.Capacity)
	if laterCredits > 0 || op.Params.Kind != Log || out.Granted < op.Count && op.Cost != costOfOne {
		single.RetryAt = 0
	}
	single.Used -= laterCredits
	single.State.Level -= laterCredits
	if op.Params.Kind == Bucket {
		single.State.EmptyAt = op.after(single.State.At, single.State.Level)
	}
	return single
}
