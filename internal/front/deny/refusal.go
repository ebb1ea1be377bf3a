package deny

import (
	"cmp"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
)

// maxCharges is how many charges a request may have for its refusals to be
// remembered.
const maxCharges = 16

// repeatable reports whether a refusal of the op may be repeated, and be
// remembered.
func repeatable(op *law.Op) bool {
	return op.Verb == law.Take && op.Alone() && !op.Partial && op.Now == 0 && !op.Timed() &&
		op.Params.History == 0 && !op.Params.Leased
}

// room returns the most credits that may be in use for an op to pass: its ceiling without its cost.
// All that a refusal says of a charge depends on that.
func room(op *law.Op) int64 { return cmp.Or(op.Ceiling, op.Params.Capacity) - op.Cost*op.Count }

// repeat refuses those groups of which a charge is known not to pass, and
// returns the indices of their ops; nil if there are none.
func (s *Store) repeat(ops []law.Op, outs []law.Outcome) (skip []int) {
	if !wrap.Asks(ops) {
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

// repeatGroup refuses a request if one of its charges is known not to pass.
func (s *Store) repeatGroup(ops []law.Op, outs []law.Outcome) bool {
	refused := false
	for i := range ops {
		if !repeatable(&ops[i]) || len(ops) > 1 && ops[i].Params.Block > 0 {
			clear(outs[:i])
			return false // the attempt leaves a trace in the store
		}
		refused = s.known(&ops[i], &outs[i]) || refused
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
		if outs[i].Via != law.ViaLocal { // nothing is known against it
			outs[i] = law.Outcome{Granted: ops[i].Count, Clock: clock, Via: law.ViaLocal}
		}
	}
	return true
}

// known fills in a refusal if the op is known not to pass. If it is not, out has another Via than that of a refusal.
func (s *Store) known(op *law.Op, out *law.Outcome) bool {
	*out = law.Outcome{}
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || room(op) > r.room || r.params != op.Params {
		return false
	}
	gone, ok := s.holds(r)
	if !ok {
		return false
	}
	*out = r.out
	if room(op) < r.room {
		// It cannot pass before, and maybe much later. When, the law says of
		// the cell as it was; a log would have to be asked.
		if op.Params.Kind == law.Log {
			return false
		}
		d := law.Decide(r.out.State, op, r.out.Clock+gone, 0, nil)
		if d.Outcome.Granted > 0 || d.Outcome.Stale {
			return false
		}
		*out = d.Outcome
		out.State = r.out.State
	}
	out.Clock, out.Via = r.out.Clock+gone, law.ViaLocal
	s.count(r)
	return true
}

// over returns the refusal of an op if it has just ended, and nothing was heard
// of the cell since.
func (s *Store) over(op *law.Op) *refusal {
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || !repeatable(op) || room(op) > r.room || r.params != op.Params {
		return nil
	}
	if gone, holds := s.holds(r); holds || gone > 2*atMost {
		return nil
	}
	return r
}

// learn remembers what was refused, and forgets what was changed.
func (s *Store) learn(ops []law.Op, outs []law.Outcome, seen []uint32, err error) {
	heard := s.now()
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		for k := i; k < j; k++ {
			switch op := &ops[k]; op.Verb {
			case law.Take:
				if err != nil || j-i > maxCharges || repeated(ops[i:j], k-i) {
					continue
				}
				if outs[k].Granted > 0 && outs[k].Via == law.ViaStore && !outs[k].Replayed {
					s.granted(op, &outs[k], seen[k], heard)
				}
				if out := outs[k]; refused(op, &out) || last(op, &out) {
					s.remember(op, &out, seen[k], heard)
				}
			case law.Check:
			default:
				s.drop(op.Cell)
			}
		}
	}
}

// refused reports whether the cell of an op has refused it.
func refused(op *law.Op, out *law.Outcome) bool {
	return repeatable(op) && out.Err == nil && !out.Stale && out.Granted < op.Count && out.RetryAt > out.Clock
}

// last reports whether an op was granted the last that there was, so that the
// next of its kind will be refused: then out becomes that refusal. One that
// blocks the cell is the store's to give.
func last(op *law.Op, out *law.Outcome) bool {
	p := &op.Params
	if !repeatable(op) || p.Kind == law.Log || p.Block > 0 || op.Count != 1 || out.Err != nil || out.Stale ||
		out.Granted != 1 || out.Used <= room(op) {
		return false
	}
	*out = following(op, out)
	return refused(op, out)
}

// following returns the outcome that an op has after another one with the outcome out, on the same cell.
func following(op *law.Op, out *law.Outcome) law.Outcome {
	next := law.Decide(out.State, op, out.Clock, 0, nil).Outcome
	next.State = out.State
	return next
}

// repeated reports whether several charges of a request are to one cell: then what was refused is their sum.
func repeated(ops []law.Op, k int) bool {
	for i := range ops {
		if i != k && ops[i].Cell == ops[k].Cell {
			return true
		}
	}
	return false
}

func (s *Store) remember(op *law.Op, out *law.Outcome, seen uint32, heard int64) {
	r := &refusal{params: op.Params, room: room(op), out: *out, heard: heard, answered: make(chan struct{})}
	// A store reads its clock before it locks the cell, and may have waited for the lock: the time of the cell
	// says how late it was at least. So a refusal is not repeated for as long as the wait beyond its time.
	r.until = heard + min(out.RetryAt-max(out.Clock, out.State.At), atMost)
	if old, ok := s.cache.GetIfPresent(op.Cell); ok && old.room > r.room && old.params == r.params {
		if _, holds := s.holds(old); holds {
			return // it says more
		}
	}
	h := s.hash(op.Cell)
	if drops := &s.drops[h]; drops.Load() == seen && !s.older(r, h) {
		s.cache.Set(op.Cell, r)
		if drops.Load() != seen || s.older(r, h) { // dropped in between
			s.cache.Invalidate(op.Cell)
		}
	}
}

// granted notes that the store has granted an op. A refusal from before that the op would have
// met is over, whatever it said: it was heard late, and would be repeated for as much too long. One of
// a charge that leaves more headroom stands, and for longer than it said.
func (s *Store) granted(op *law.Op, out *law.Outcome, seen uint32, heard int64) {
	last, clock := &s.grants[s.hash(op.Cell)], out.Clock
	for old := last.Load(); clock > old || old-clock > longestAway; old = last.Load() { // or the clock was set back
		if last.CompareAndSwap(old, clock) {
			break
		}
	}
	r, ok := s.cache.GetIfPresent(op.Cell)
	if !ok || r.out.Clock > clock {
		return
	}
	limit := op.Params
	limit.Block = r.params.Block // which a charge that leaves headroom has not
	if limit != r.params || out.Used-op.Cost*out.Granted <= r.room {
		if r.out.Clock < clock {
			s.cache.Invalidate(op.Cell)
		}
		return
	}
	if r.room < 0 || limit.Kind == law.Log || limit.Block > 0 {
		return // only the store knows until when
	}
	again := law.Op{
		Verb: law.Take, Cell: op.Cell, Params: limit, Count: 1, Cost: 1, Ceiling: r.room + 1, Window: op.Window,
	}
	next := following(&again, out) // a refusal, since more than r.room was in use before
	s.remember(&again, &next, seen, heard)
}

// longestAway is how late an answer arrives at most, in microseconds. A time that is further
// back was read after the store's clock had been set.
const longestAway = 10_000_000

// older reports whether the store has granted something of a cell with this hash since it
// refused.
func (s *Store) older(r *refusal, h int) bool {
	since := s.grants[h].Load() - r.out.Clock
	return since > 0 && since <= longestAway
}

// drop forgets the refusal of a cell, also one that is on its way here.
func (s *Store) drop(c law.Cell) {
	s.drops[s.hash(c)].Add(1)
	s.cache.Invalidate(c)
}

func (s *Store) hash(c law.Cell) int {
	return int(sched.Hash(s.seed, c) % uint64(len(s.drops)))
}

// generations appends how often the cells of ops have been dropped.
func (s *Store) generations(ops []law.Op, to []uint32) []uint32 {
	for i := range ops {
		to = append(to, s.drops[s.hash(ops[i].Cell)].Load())
	}
	return to
}
