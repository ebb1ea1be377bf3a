package deny

import (
	"cmp"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// maxCharges is how many charges a request may have if its refusals are to be cached.
const maxCharges = 16

// isRepeatable reports whether a refusal of the op may be cached and repeated.
func isRepeatable(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Partial && op.Now == 0 && !op.Timed() &&
		op.Params.History == 0 && !op.Params.Leased
}

// maxLevel returns the highest level at which an op passes: its ceiling without its cost. A refusal depends on
// nothing else of a charge.
func maxLevel(op *law.Op) int64 { return cmp.Or(op.Ceiling, op.Params.Capacity) - op.Cost*op.Count }

// repeatRefusals refuses the groups with a charge that a cached refusal covers, and returns the indices of their ops.
func (s *Store) repeatRefusals(ops []law.Op, outs []law.Outcome) (skip []int) {
	if !wrap.OnlyTakesAndChecks(ops) {
		return nil
	}
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if s.repeatGroup(ops[i:j], outs[i:j]) {
			for k := i; k < j; k++ {
				skip = append(skip, k)
			}
		}
	}
	return skip
}

// repeatGroup refuses a group if one of its charges cannot pass by a cached refusal, and reports whether it did.
func (s *Store) repeatGroup(ops []law.Op, outs []law.Outcome) bool {
	refused := false
	for i := range ops {
		if !isRepeatable(&ops[i]) || len(ops) > 1 && ops[i].Params.Block > 0 {
			clear(outs[:i])
			return false // the attempt leaves a trace in the store
		}
		refused = s.repeatRefusal(&ops[i], &outs[i]) || refused
	}
	if !refused || law.ValidGroup(ops) != nil {
		clear(outs)
		return false
	}
	var clock int64
	for i := range ops {
		clock = max(clock, outs[i].Clock)
	}
	for i := range ops {
		if outs[i].Via != law.ViaLocal { // no refusal is cached for this charge
			outs[i] = law.Outcome{Granted: ops[i].Count, Clock: clock, Via: law.ViaLocal}
		}
	}
	return true
}

// repeatRefusal sets out to a refusal if the op cannot pass by a cached refusal. Otherwise it returns false, and
// the Via of out is not law.ViaLocal.
func (s *Store) repeatRefusal(op *law.Op, out *law.Outcome) bool {
	*out = law.Outcome{}
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || maxLevel(op) > r.maxLevel || r.params != op.Params {
		return false
	}
	age, ok := s.holds(r)
	if !ok {
		return false
	}
	*out = r.out
	if maxLevel(op) < r.maxLevel {
		// The op costs more, so it may have to wait much longer. The law computes
		// that from the cached state; for a log the store needs its entries.
		if op.Params.Kind == law.Log {
			return false
		}
		d := law.Decide(r.out.State, op, r.out.Clock+age, 0, nil)
		if d.Outcome.Granted > 0 || d.Outcome.Stale {
			return false
		}
		*out = d.Outcome
		out.State = r.out.State
	}
	out.Clock, out.Via = r.out.Clock+age, law.ViaLocal
	s.countRepeat(r)
	return true
}

// justEnded returns the refusal of an op if it has ended a short time ago, and no answer about the cell came since.
func (s *Store) justEnded(op *law.Op) *refusal {
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || !isRepeatable(op) || maxLevel(op) > r.maxLevel || r.params != op.Params {
		return nil
	}
	if age, holds := s.holds(r); holds || age > 2*maxRepeat {
		return nil
	}
	return r
}

// cacheOutcomes caches refusals, and drops those of changed cells. dropsBefore has the drop counts before the call.
func (s *Store) cacheOutcomes(ops []law.Op, outs []law.Outcome, dropsBefore []uint32, err error) {
	receivedAt := s.now()
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		for k := i; k < j; k++ {
			switch op := &ops[k]; op.Verb {
			case law.Take:
				if err != nil || j-i > maxCharges || sharesCell(ops[i:j], k-i) {
					continue
				}
				if outs[k].Granted > 0 && outs[k].Via == law.ViaStore && !outs[k].Replayed {
					s.recordGrant(op, &outs[k], dropsBefore[k], receivedAt)
				}
				if out := outs[k]; isRefusal(op, &out) || takesLast(op, &out) {
					s.cacheRefusal(op, &out, dropsBefore[k], receivedAt)
				}
			case law.Check:
			default:
				s.dropCounts[s.hash(op.Cell)].Add(1) // also for a refusal that a call under way will bring
				s.cache.Invalidate(op.Cell)
			}
		}
	}
}

// isRefusal reports whether the cell of an op has refused it.
func isRefusal(op *law.Op, out *law.Outcome) bool {
	return isRepeatable(op) && out.Err == nil && !out.Stale && out.Granted < op.Count && out.RetryAt > out.Clock
}

// takesLast reports whether a granted op leaves too little for another op of its kind. It then sets out to the refusal
// of that next op. If the limit has a block, only the store can refuse, since a refusal blocks the cell.
func takesLast(op *law.Op, out *law.Outcome) bool {
	p := &op.Params
	if !isRepeatable(op) || p.Kind == law.Log || p.Block > 0 || op.Count != 1 || out.Err != nil || out.Stale ||
		out.Granted != 1 || out.Used <= maxLevel(op) {
		return false
	}
	*out = nextOutcome(op, out)
	return isRefusal(op, out)
}

// nextOutcome returns the outcome of an op that follows another op with the outcome out on the same cell.
func nextOutcome(op *law.Op, out *law.Outcome) law.Outcome {
	next := law.Decide(out.State, op, out.Clock, 0, nil).Outcome
	next.State = out.State
	return next
}

// sharesCell reports whether another charge of a request has the cell of charge k: then their sum was refused.
func sharesCell(ops []law.Op, k int) bool {
	for i := range ops {
		if i != k && ops[i].Cell == ops[k].Cell {
			return true
		}
	}
	return false
}

// cacheRefusal caches a refusal, unless the cached one holds for more costs, or the cell was changed or granted since.
func (s *Store) cacheRefusal(op *law.Op, out *law.Outcome, dropsBefore uint32, receivedAt int64) {
	r := &refusal{params: op.Params, out: *out, receivedAt: receivedAt, refreshed: make(chan struct{})}
	r.maxLevel = maxLevel(op)
	// A store reads its clock before it locks the cell, and may have waited for the lock: the time of the cell
	// says how late it was at least. So a refusal is not repeated for as long as the wait beyond its time.
	r.until = receivedAt + min(out.RetryAt-max(out.Clock, out.State.At), maxRepeat)
	if old, ok := s.cache.GetIfPresent(op.Cell); ok && old.maxLevel > r.maxLevel && old.params == r.params {
		if _, holds := s.holds(old); holds {
			return // the old refusal holds for smaller costs too
		}
	}
	h := s.hash(op.Cell)
	if drops := &s.dropCounts[h]; drops.Load() == dropsBefore && !s.precedesGrant(r, h) {
		s.cache.Set(op.Cell, r)
		if drops.Load() != dropsBefore || s.precedesGrant(r, h) { // dropped in between
			s.cache.Invalidate(op.Cell)
		}
	}
}

// recordGrant records that the store has granted an op. An older refusal that would have refused the op has
// ended, whatever its until: it was received late, and would be repeated for as much too long. The refusal of
// a charge that leaves more headroom still holds, and for longer than before.
func (s *Store) recordGrant(op *law.Op, out *law.Outcome, dropsBefore uint32, receivedAt int64) {
	lastGrant, clock := &s.lastGrants[s.hash(op.Cell)], out.Clock
	for old := lastGrant.Load(); clock > old || old-clock > maxDelay; old = lastGrant.Load() { // or set back
		if lastGrant.CompareAndSwap(old, clock) {
			break
		}
	}
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || r.out.Clock > clock {
		return
	}
	limit := op.Params
	limit.Block = r.params.Block // the op of a charge that leaves headroom has none
	if limit != r.params || out.Used-op.Cost*out.Granted <= r.maxLevel {
		if r.out.Clock < clock {
			s.cache.Invalidate(op.Cell)
		}
		return
	}
	if r.maxLevel < 0 || limit.Kind == law.Log || limit.Block > 0 {
		return // only the store knows until when
	}
	nextOp := law.Op{
		Verb: law.Take, Cell: op.Cell, Params: limit, Count: 1, Cost: 1, Ceiling: r.maxLevel + 1, Window: op.Window,
	}
	next := nextOutcome(&nextOp, out) // a refusal, since more than r.maxLevel was in use before
	s.cacheRefusal(&nextOp, &next, dropsBefore, receivedAt)
}

// maxDelay is how late an answer arrives at most, in microseconds. A time that is further back was read after the
// store's clock had been set back.
const maxDelay = 10_000_000

// precedesGrant reports whether the store has granted a charge of a cell with hash h after the refusal.
func (s *Store) precedesGrant(r *refusal, h int) bool {
	since := s.lastGrants[h].Load() - r.out.Clock
	return since > 0 && since <= maxDelay
}

// hash returns the index of a cell in dropCounts and lastGrants.
func (s *Store) hash(c law.Cell) int { return int(sched.Hash(s.seed, c) % uint64(len(s.dropCounts))) }

// dropCountsOf appends to counts how often refusals of the cells of ops have been dropped.
func (s *Store) dropCountsOf(ops []law.Op, counts []uint32) []uint32 {
	for i := range ops {
		counts = append(counts, s.dropCounts[s.hash(ops[i].Cell)].Load())
	}
	return counts
}
