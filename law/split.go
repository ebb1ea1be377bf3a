package law

// Split returns what one of several sees who share an op of verb Take that was
// granted in part, as if each had asked alone, one after another: out is the
// outcome of all, rank 0 the one who came first. What a refusal of a later one
// did to the cell, such as to block it, all of them see.
func Split(op *Op, out *Outcome, rank int64) Outcome {
	mine := *out
	if rank >= out.Granted {
		mine.Granted, mine.EntryNumber = 0, 0
		return mine
	}
	later := (out.Granted - 1 - rank) * op.Cost // granted to callers that came later
	mine.Granted = 1
	// The last one learns when a cost of 1 fits, if that is what the outcome of all says.
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
