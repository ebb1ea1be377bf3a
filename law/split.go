package law

// Split returns the outcome for one of the callers that share a Take, as if each had come alone, one after another.
// out is the outcome of all, and rank 0 the first caller. All callers see what the refusal of a later one did to the
// cell, such as a block.
func Split(op *Op, out *Outcome, rank int64) Outcome {
	mine := *out
	if rank >= out.Granted {
		mine.Granted, mine.EntryNumber = 0, 0
		return mine
	}
	later := (out.Granted - 1 - rank) * op.Cost // granted to callers that came later
	mine.Granted = 1
	// The last one gets the time at which a cost of 1 fits, if the outcome of all has that.
	one := min(op.Params.Unit, op.Params.Capacity)
	if later > 0 || op.Params.Kind != Log || out.Granted < op.Count && op.Cost != one {
		mine.RetryAt = 0
	}
	mine.Used -= later
	mine.State.Level -= later
	if op.Params.Kind == Bucket {
		mine.State.EmptyAt = op.after(mine.State.At, mine.State.Level)
	}
	return mine
}
