package law

// A plain cell is a cell of the bucket law without calendar boundaries that has the unit and the step of the limit, is
// not blocked and remembers no returns: its level and time are its whole state. The memory store keeps most cells as
// plain cells, and decides their charges without a batch.

// PlainSlack is how far, in microseconds, the clock may lie behind a plain cell for TakePlain to decide it. Further
// behind, the cell may have to be healed, which takes Decide.
const PlainSlack = clockSlack

// Plain reports whether cells of the limit can be plain.
func (p *Params) Plain() bool { return p.Kind == Bucket && p.Anchor != Calendar }

// PlainState returns the state of a plain cell with this level at the time at.
func (p *Params) PlainState(level, at int64) State {
	return State{Kind: Bucket, Level: level, At: at, Unit: p.Unit, Step: p.Step, EmptyAt: p.after(at, level)}
}

// PlainEmptyAt returns when a plain cell with this level at the time at is empty.
func (p *Params) PlainEmptyAt(level, at int64) int64 { return p.after(at, level) }

// TakePlain decides a plain charge of a plain cell: a Take of one Count of cost, without a ceiling, while the clock is
// at most PlainSlack behind the cell. A fresh cell has level and time 0. It is up to the caller to block the cell after
// a refusal, if the limit does that.
//
// used, retryAt and emptyAt are fields of the outcome and its state. If the charge was granted, used and t are the new
// level and time of the cell; otherwise the cell's level and time do not change.
//
// If a charge of the sum of several costs is granted, so is a charge of each cost, one after another at the same clock.
// All leave the same t, and each raises the level by its cost.
//
// The results are not a struct because the compiler does not keep one of this size in registers: that would be a third
// of the time that a decision takes.
func TakePlain(p *Params, level, at, cost, clock int64) (granted bool, used, t, retryAt, emptyAt int64) {
	used, t = p.drained(level, at, max(clock, at))
	if used <= p.Capacity-cost {
		used += cost
		return true, used, t, 0, p.after(t, used)
	}
	retryAt = Never
	if cost <= p.Capacity {
		retryAt = p.after(t, used+cost-p.Capacity)
	}
	return false, used, t, retryAt, p.after(at, level)
}
