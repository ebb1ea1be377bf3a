package law

// ledger returns the log of the cell as it is at this point of the batch: the stored entries that still count, with the
// changes of the batch.
func (r *Record) ledger() Ledger {
	if len(r.Add)+len(r.Lower)+len(r.Renew) == 0 && !r.Clear {
		if r.Log == nil {
			return noLog{}
		}
		return r.Log
	}
	return &batchLog{r}
}

// noLog is the Ledger without entries.
type noLog struct{}

func (noLog) Sum(_, _ int64) int64       { return 0 }
func (noLog) Freed(_, _ int64) int64     { return Never }
func (noLog) Entry(_ int64) (_, _ int64) { return 0, 0 }

// batchLog is the Ledger of a cell whose log the batch has changed.
type batchLog struct{ r *Record }

// stored returns the log from before the batch, without entries if the batch has cleared it.
func (b *batchLog) stored() Ledger {
	if b.r.Log == nil || b.r.Clear {
		return noLog{}
	}
	return b.r.Log
}

// Sum implements Ledger.
func (b *batchLog) Sum(after, upto int64) int64 {
	sum := b.stored().Sum(after, upto)
	b.changes(func(at, credits int64) {
		if at > after && at <= upto {
			sum += credits
		}
	})
	return sum
}

// changes calls f for each expiry at which the batch has added credits, or, with credits less than 0, removed some.
func (b *batchLog) changes(f func(at, credits int64)) {
	for i := range b.r.Add {
		if e := &b.r.Add[i]; e.Granted {
			f(e.ExpiresAt, e.Cost)
		}
	}
	for _, n := range b.r.Renew {
		f(n.From, -n.Credits)
		f(n.To, n.Credits)
	}
	for _, l := range b.r.Lower {
		f(l.ExpiresAt, -l.Credits)
	}
}

// Freed implements Ledger. Entries of the batch mostly expire after the stored ones; but test times may run backwards.
// So it looks at each expiry of the batch, and at each stored expiry by which enough may have expired together with the
// changes of the batch.
func (b *batchLog) Freed(after, need int64) int64 {
	earliest := int64(Never)
	b.changes(func(at, credits int64) {
		if credits > 0 && at > after && at < earliest && b.Sum(after, at) >= need {
			earliest = at
		}
	})
	stored := b.stored()
	var added int64
	b.changes(func(at, credits int64) {
		if credits > 0 && at > after && at < earliest {
			added += credits
		}
	})
	// Start at the first stored expiry that could be enough, and go on, expiry by expiry, while the changes of the
	// batch leave too little.
	t := after
	for wanted := need - added; ; {
		t = stored.Freed(after, max(wanted, stored.Sum(after, t)+1))
		if t >= earliest {
			return earliest
		}
		if b.Sum(after, t) >= need {
			return t
		}
	}
}

// Entry implements Ledger. Entries of the batch have numbers below 0.
func (b *batchLog) Entry(number int64) (credits, expiresAt int64) {
	if number < 0 {
		e := &b.r.Add[-number-1]
		return e.Cost, e.ExpiresAt
	}
	credits, expiresAt = b.stored().Entry(number)
	for _, n := range b.r.Renew {
		if n.Number == number {
			expiresAt = n.To
		}
	}
	for _, l := range b.r.Lower {
		if l.Number == number {
			credits -= l.Credits
		}
	}
	if credits <= 0 {
		return 0, 0
	}
	return credits, expiresAt
}
