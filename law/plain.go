package law

// A plain cell is one of the bucket law that needs neither boundaries nor a
// log, has the kind and the unit of the limit, is not blocked and remembers no
// returns: two numbers say all about it. Stores in this process keep most
// cells so, and decide about them without a batch.

// PlainSlack is how far, in microseconds, the clock may lie behind a plain
// cell for TakePlain to decide what Decide does. Beyond, the cell may have to
// be healed.
const PlainSlack = clockSlack

// Plain reports whether cells of the limit can be plain.
func (p *Params) Plain() bool { return p.Kind == Bucket && p.Anchor != Calendar }

// PlainState returns the state of a plain cell with credits in use, as of at.
func (p *Params) PlainState(level, at int64) State {
	return State{Kind: Bucket, Level: level, At: at, Unit: p.Unit, Step: p.Step, EmptyAt: p.after(at, level)}
}

// PlainEmptyAt returns the EmptyAt of PlainState.
func (p *Params) PlainEmptyAt(level, at int64) int64 { return p.after(at, level) }

// TakePlain decides a plain charge of a plain cell: a Take of one Count
// of cost, without a ceiling, while the clock is at most PlainSlack behind the
// cell. A fresh cell has level and time 0. That a refusal may block the cell
// is left to the caller.
//
// used, retryAt and emptyAt are those of the outcome and its state. If the
// charge was granted, used and t are the level and the time of the cell from
// now on; otherwise they stay what they were.
//
// If the sum of several charges is granted, each of them is granted at the same clock, one
// after another. All of them leave the same t, and each a level that is higher by its cost.
//
// The results are not a struct because the compiler keeps none as large in
// registers: that would be a third of the time that a decision takes.
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
