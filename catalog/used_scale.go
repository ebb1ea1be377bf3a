package catalog

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

const (
	// workAtOnce is how many keys are worked on in one batch, which a signal does not interrupt.
	workAtOnce = 100
	// workWithin bounds a batch.
	workWithin = 30 * time.Second
	// scaleWithin is the time within which the second batch of a key has to follow the first, in microseconds. It
	// is doubled for each of the tries after the first.
	scaleWithin = 50_000
	scaleTries  = 10
)

// all works on the keys, and returns how many are done.
func (w *usedWork) all(ctx context.Context) (done int, err error) {
	for done < len(w.keys) {
		w.used.tell(UsedWorking, done, len(w.keys))
		if err := ctx.Err(); err != nil {
			return done, err
		}
		keys := w.keys[done:min(done+workAtOnce, len(w.keys))]
		within, cancel := sched.WithTimeout(context.WithoutCancel(ctx), workWithin)
		err := w.some(within, keys)
		cancel()
		if err != nil {
			return done, err
		}
		done += len(keys)
	}
	w.used.tell(UsedWorking, done, len(w.keys))
	return done, nil
}

// some works on some keys, as far as another limit holds for them now.
func (w *usedWork) some(ctx context.Context, keys []usedKey) error {
	limits, err := w.holding(ctx, len(keys), func(i int) law.Cell { return keys[i].cell })
	if err != nil {
		return err
	}
	var reset []law.Op
	var scale []*scaling
	for i := range keys {
		k, is := &keys[i], limits[i]
		if is.String() == k.was.String() && !w.every {
			continue
		}
		if w.used.Mode == ResetUsed {
			if is.IsZero() {
				is = k.was
			}
			if !is.IsZero() {
				reset = append(reset, law.Op{
					Verb: law.Reset, Group: uint32(len(reset) + 1), Cell: k.cell, Params: is.Params(),
					Window: is.Boundaries(w.clock), Cost: 1, Count: 1,
				})
			}
			continue
		}
		if s := w.scaling(k, is); s != nil {
			scale = append(scale, s)
		}
	}
	if len(reset) > 0 {
		_, err = w.apply(ctx, reset)
		return err
	}
	if scale, err = w.concerned(ctx, scale); err != nil {
		return err
	}
	for try := 0; len(scale) > 0; try++ {
		if try == scaleTries {
			return fmt.Errorf("%w: the store is too slow to scale %d keys", store.ErrBusy, len(scale))
		}
		if scale, err = w.scale(ctx, scale, scaleWithin<<try); err != nil {
			return err
		}
	}
	return nil
}

// apply asks the store.
func (w *usedWork) apply(ctx context.Context, ops []law.Op) ([]law.Outcome, error) {
	outs := make([]law.Outcome, len(ops))
	if err := w.c.store.Apply(ctx, ops, outs); err != nil {
		return nil, err
	}
	for i := range outs {
		if err := outs[i].Err; err != nil {
			return nil, err
		}
	}
	return outs, nil
}

// A key is scaled in two batches. The first finds out what is in use, and makes of it one sum that neither drains
// nor expires for a while, as a conversion of the law does: to melted, and back to the limit. The second, soon
// after, gives back a part of that sum, or adds to it, while the cell is melted. It is relative, so what others
// charge between the two, or did before, stays charged in full.
//
// melted is the form of a cell that drains by nothing, and of which all can be given back.
func melted(unit int64) law.Params {
	return law.Params{Kind: law.Bucket, Unit: unit, Capacity: law.Max, Step: 1 << 52, Drain: law.Max}
}

// scaling is a key that is scaled.
type scaling struct {
	key    *usedKey
	is     headgate.Limit
	params law.Params // of is, without what a refusal does
	ratio  *big.Rat   // of new credits to as many, by the capacities
	lower  bool
	again  bool // it was found out before how many credits of params were used before the change

	add   int64 // credits; less than 0: to be given back
	renew bool  // the sum drains by the new limit alone, and is not forgotten when the old one would have
	until int64 // the store's time
}

// scaling returns nil for a key that keeps what it has used.
func (w *usedWork) scaling(k *usedKey, is headgate.Limit) *scaling {
	if !fractional(k.was) || !fractional(is) {
		return nil
	}
	p, was := is.Params(), k.was.Params()
	p.Block, p.History, p.Prefetch, p.PrefetchLife = 0, 0, 0, 0
	ratio := new(big.Rat).Quo(big.NewRat(p.Capacity, p.Unit), big.NewRat(was.Capacity, was.Unit))
	if ratio.Cmp(big.NewRat(1, 1)) == 0 {
		return nil
	}
	return &scaling{key: k, is: is, params: p, ratio: ratio, lower: ratio.Cmp(big.NewRat(1, 1)) < 0}
}

// fractional reports whether there is a fraction of a limit that is used.
func fractional(l headgate.Limit) bool {
	switch l.Algorithm().(type) {
	case nil, headgate.Closed, headgate.Unlimited, headgate.Concurrency:
		return false
	}
	return true
}

// turn is the op that makes a cell one of other parameters: a charge that can never pass changes nothing else.
func (s *scaling) turn(p law.Params, group uint32, clock int64) law.Op {
	op := law.Op{Verb: law.Take, Group: group, Cell: s.key.cell, Params: p, Cost: 2, Count: 1, Ceiling: 1}
	if p.Kind == law.Bucket && p.Anchor == law.Calendar {
		op.Window = s.is.Boundaries(clock)
	}
	return op
}

// check is the op that finds out what is in use.
func (s *scaling) check(group uint32, clock int64) law.Op {
	op := s.turn(s.params, group, clock)
	op.Verb, op.Cost, op.Ceiling = law.Check, 1, 0
	return op
}

// concerned returns the keys that have something to scale. The others are not written at all.
func (w *usedWork) concerned(ctx context.Context, list []*scaling) (rest []*scaling, err error) {
	if len(list) == 0 {
		return nil, nil
	}
	ops := make([]law.Op, len(list))
	for i, s := range list {
		ops[i] = s.check(uint32(i+1), w.clock)
	}
	outs, err := w.apply(ctx, ops)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		out := &outs[i]
		w.clock = max(w.clock, out.Clock)
		if out.Stale || out.Err == nil && out.State.Kind != 0 && w.old(s, out, out.Used-out.Granted) > 0 {
			rest = append(rest, s)
		}
	}
	return rest, nil
}

// scale scales keys, and returns those that are to be scaled again, since time went by.
func (w *usedWork) scale(ctx context.Context, list []*scaling, within int64) (again []*scaling, err error) {
	var ops []law.Op
	for _, s := range list {
		group := uint32(len(ops) + 1)
		check := s.check(group, w.clock)
		melt := s.turn(melted(s.params.Unit), group+1, w.clock)
		melt.From, melt.Until = check.Window[0], check.Window[3] // stale if the others are
		ops = append(ops, check, melt, s.turn(s.params, group+2, w.clock))
	}
	outs, err := w.apply(ctx, ops)
	if err != nil {
		return nil, err
	}
	var second []*scaling
	for i, s := range list {
		check, form := &outs[3*i], &outs[3*i+2]
		w.clock = max(w.clock, form.Clock)
		switch {
		case check.Stale || form.Stale:
			again = append(again, s)
		case check.Err != nil || form.State.Kind == 0:
		default:
			if w.decide(s, check, form, within); s.add != 0 || s.renew {
				second = append(second, s)
			}
		}
	}
	if len(second) == 0 {
		return again, nil
	}
	more, err := w.correct(ctx, second)
	return append(again, more...), err
}

// correct gives back, or adds, what decide has said.
func (w *usedWork) correct(ctx context.Context, list []*scaling) (again []*scaling, err error) {
	var ops []law.Op
	var first []int // of each key
	for _, s := range list {
		melt := melted(s.params.Unit)
		turn := s.turn(melt, uint32(len(ops)+1), w.clock)
		turn.Until = s.until
		first, ops = append(first, len(ops)), append(ops, turn)
		correct := func(credits int64) {
			ops = append(ops, law.Op{
				Verb: law.Return, Group: uint32(len(ops) + 1), Cell: s.key.cell, Params: melt, Cost: -credits, Count: 1,
				Level: law.Max, Returned: law.Max,
			})
		}
		if s.renew && s.add <= 0 { // what is added is forgotten by the new limit, with all that is there
			correct(s.add - 1)
			correct(1)
		} else {
			correct(s.add)
		}
		ops = append(ops, s.turn(s.params, uint32(len(ops)+1), w.clock))
	}
	outs, err := w.apply(ctx, ops)
	if err != nil {
		return nil, err
	}
	for i, s := range list {
		turn, correct := &outs[first[i]], &outs[first[i]+1]
		if turn.Stale || correct.Granted == 0 { // too late, or somebody has made it another cell
			again = append(again, s)
		}
		w.clock = max(w.clock, correct.Clock)
	}
	return again, nil
}

// decide says by how much the sum of a cell is to be corrected, and until when.
func (w *usedWork) decide(s *scaling, check, form *law.Outcome, within int64) {
	p, now := &s.params, max(form.Clock, form.State.At)
	used := check.Used - check.Granted
	sum := form.State.Level
	if form.State.Kind == law.Window {
		sum += form.State.Prev
	}
	old := min(w.old(s, check, used), used)
	s.again, s.key.state, s.key.used = true, form.State, old
	want := used - old + s.scaled(old)
	s.add, s.renew, s.until = 0, false, min(now+within, form.State.EmptyAt)
	if form.State.EmptyAt <= now { // nothing counts
		return
	}
	// What is below what drains until then would be drained by more than it has.
	if p.Kind == law.Bucket {
		switch {
		case p.Anchor == law.Calendar:
		case p.Step >= within && p.Anchor == law.Epoch:
			s.until = min(s.until, now-now%p.Step+p.Step)
		case p.Step >= within:
			s.until = min(s.until, now+p.Step)
		default:
			want = max(want, min(sum, drains(p, within)))
		}
	}
	s.add = want - sum
	s.renew = old > 0 && want > 0 && p.Kind == law.Bucket && p.Anchor == law.Own && p.Drain < p.Capacity
}

// drains is how much of a bucket drains at most in some microseconds.
func drains(p *law.Params, us int64) int64 {
	steps := us/p.Step + 2
	if p.Drain > law.Max/steps {
		return law.Max
	}
	return p.Drain * steps
}

// old returns how much of what is used was used before the change.
func (w *usedWork) old(s *scaling, check *law.Outcome, used int64) int64 {
	before, full := s.key.used, s.params.Capacity
	if !s.again {
		before = ceil(new(big.Rat).Mul(big.NewRat(before, s.key.was.Params().Unit), big.NewRat(s.params.Unit, 1)))
	}
	switch {
	case s.again && s.kept(check):
		return before
	case !w.from.IsZero() && !s.again:
		// The new limit refuses every key that has used more than it allows.
		if charged(s.key.was, &check.State) < w.since || s.lower && used > full && s.scaled(used) <= full {
			return used
		}
		return 0
	case s.kept(check):
		return used
	case !s.lower, s.key.added(&check.State), !s.is.Queues() && before > full && used > full:
		return before
	}
	return 0
}

// kept reports whether nothing was charged to the key since it was read.
func (s *scaling) kept(check *law.Outcome) bool {
	turn := s.turn(s.params, 1, check.Clock)
	was := s.key.was.Params()
	return s.key.kept(&check.State, &s.params, &turn) || s.key.kept(&check.State, &was, &turn)
}

// charged returns the latest time at which a cell can have been charged last.
func charged(was headgate.Limit, state *law.State) int64 {
	if state.Kind != law.Bucket {
		return state.At
	}
	if was.Params().Anchor == law.Calendar {
		return law.Max
	}
	return state.At - state.At%state.Step + 2*state.Step
}

// scaled returns what becomes of credits.
func (s *scaling) scaled(credits int64) int64 {
	return ceil(new(big.Rat).Mul(big.NewRat(credits, 1), s.ratio))
}

// ceil rounds up, to law.Max/2 at most.
func ceil(r *big.Rat) int64 {
	q, m := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	if q.Cmp(big.NewInt(law.Max/2)) > 0 {
		return law.Max / 2
	}
	return q.Int64()
}
