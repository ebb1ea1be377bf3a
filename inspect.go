package headgate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Block refuses every charge of a limit for a key until d from now, whatever
// its level, and says why. A d of zero lifts the block, also one that a limit
// has set by itself. It replaces an earlier block.
func (l *Limiter) Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error) {
	if d < 0 {
		return Status{}, Invalid("for", "%s is negative; 0 lifts a block", d)
	}
	if d > 0 {
		if err := checkPeriod("for", d); err != nil {
			return Status{}, err
		}
	}
	limit, op, out, err := l.one(ctx, law.Block, limit, key, func(op *law.Op) {
		op.TTL, op.Reason = d.Microseconds(), reason
	})
	if err != nil {
		return Status{}, err
	}
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if d > 0 {
		cell.Reason = reason
	}
	return newStatus(cell, limit, &op, cell.State.InUse(&op, out.Clock), out.Clock), nil
}

// Reset forgets all about a key: its level, its block. It reports whether
// there was anything to forget. A history is kept.
func (l *Limiter) Reset(ctx context.Context, limit Limit, key string) (existed bool, err error) {
	_, op, out, err := l.one(ctx, law.Reset, limit, key, nil)
	l.turns.wake(op.Cell)
	return out.Granted > 0, err
}

// one applies a single op that charges nothing, for operators, and returns the limit that holds.
func (l *Limiter) one(ctx context.Context, verb law.Verb, limit Limit, key string, set func(*law.Op)) (
	held Limit, op law.Op, out law.Outcome, err error,
) {
	c := call{l: l, asked: []Charge{{Limit: limit, Key: key}}}
	err = c.do(ctx, l.timeout, func(ctx context.Context) error {
		held = c.charges()[0].Limit
		r := l.request(c.charges())
		err := l.compileWith(r.ops, verb, 1, c.charges(), Cost.charged)
		if err == nil {
			err = law.ValidGroup(r.ops)
		}
		if err == nil {
			if set != nil {
				set(&r.ops[0])
			}
			err = r.do(ctx)
		}
		op, out = r.ops[0], r.outs[0]
		return err
	})
	return held, op, out, err
}

// Status is what is known about a key of a limit, without asking for
// anything.
type Status struct {
	Limit  string // its name
	Key    string
	Exists bool // false: never used, or long forgotten; as good as new
	// Rule is the notation of the limit that is in force for the key, empty if its parameters are
	// not known here, and of List, which knows limits by their names alone. Applied says why it
	// is in force; see [Decision.Applied].
	Rule, Applied string

	Used      Cost  // in use now, rounded up to a millionth, or to the digits of the limit
	Capacity  Cost  // the most that can be in use; zero if the limit's parameters are not known here
	Remaining int64 // whole units of cost that could pass now; -1 if Capacity is not known

	RemainingNanos int32 // what is left beside it, as that of a Decision

	At           time.Time // the store's time that this holds for
	UpdatedAt    time.Time // of the last change; zero if none
	EmptyAt      time.Time // from then on nothing is in use, if nobody charges the key; in the past: nothing is
	BlockedUntil time.Time // zero: not blocked
	Reason       string    // of the block, where one was given

	History []Attempt // newest first, for limits that keep a log
}

// Attempt is one entry in the log of a key.
type Attempt struct {
	Number  int64 // transaction number
	At      time.Time
	Cost    Cost // rounded up to a millionth
	Allowed bool
}

// historyShown is how many entries of a log Inspect returns.
const historyShown = 20

// Inspect tells all about one key of a limit. It changes nothing and takes no
// lock. ErrUnsupported if the store cannot be looked into.
func (l *Limiter) Inspect(ctx context.Context, limit Limit, key string) (s Status, err error) {
	inspector, err := l.inspector()
	if err != nil {
		return Status{}, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	// A check of the smallest cost brings the level forward to the present.
	limit, op, out, err := l.one(ctx, law.Check, limit, key, func(op *law.Op) { op.Cost = 1 })
	if err != nil {
		return Status{}, err
	}
	cells, _, err := inspector.Cells(ctx, store.Query{Limit: op.Cell.Limit, Key: key, HasKey: true, Max: 1})
	if err != nil {
		return Status{}, err
	}
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if len(cells) == 1 {
		cell.Reason = cells[0].Reason
	}
	s = checked(cell, limit, &op, &out)
	if op.Params.Kind == law.Log {
		s.History, err = attempts(ctx, inspector, op.Cell, &op.Params, historyShown)
	}
	return s, err
}

// Attempts returns the newest n attempts of a key, newest first, of a limit that keeps a log; none of another. It
// changes nothing and takes no lock. ErrUnsupported if the store cannot be looked into.
func (l *Limiter) Attempts(ctx context.Context, limit Limit, key string, n int) (list []Attempt, err error) {
	inspector, err := l.inspector()
	switch {
	case err != nil:
		return nil, err
	case limit.IsZero():
		return nil, Invalid("limit", "is missing")
	case n < 1:
		return nil, Invalid("attempts", "%d is not above 0", n)
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	if limit, err = l.resolveOne(ctx, limit, key); err != nil || limit.Params().Kind != law.Log {
		return nil, err
	}
	return attempts(ctx, inspector, law.Cell{Limit: limit.Name(), Key: key}, &limit.r.params, n)
}

func attempts(ctx context.Context, s store.Inspector, c law.Cell, p *law.Params, n int) (
	list []Attempt, err error,
) {
	entries, err := s.Entries(ctx, c, n)
	for _, e := range entries {
		list = append(list, Attempt{e.Number, time.UnixMicro(e.At).UTC(), costOf(e.Cost, p, true), e.Granted})
	}
	return list, err
}

// checked describes a cell that a check has asked about.
func checked(cell store.Cell, limit Limit, op *law.Op, out *law.Outcome) Status {
	return newStatus(cell, limit, op, before(op, out), out.Clock)
}

// before returns what was in use before a check.
func before(op *law.Op, out *law.Outcome) int64 { return out.Used - out.Granted*op.Cost }

// List returns the cells of the store that q selects, with what is in use now. Limits
// with a name are known by limits; others by their notation. Of a limit that is not
// known there is no Capacity, and Used is at most the drain of one step too high, more
// only where something was given back. It changes nothing and takes no lock.
// ErrUnsupported if the store cannot be looked into.
func (l *Limiter) List(ctx context.Context, q store.Query, limits ...Limit) (list []Status, err error) {
	inspector, err := l.inspector()
	if err != nil {
		return nil, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	cells, clock, err := inspector.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	known := naming(limits)
	ops, used := make([]law.Op, len(cells)), make([]int64, len(cells))
	var logs []int // those of which the entries say what is in use
	for i, c := range cells {
		ops[i] = checkOf(c, known.find(c.Limit), uint32(i+1), clock)
		if used[i] = c.State.InUse(&ops[i], clock); used[i] > 0 && c.State.Kind == law.Log &&
			ops[i].Params.Kind == law.Log {
			logs = append(logs, i)
		}
	}
	if err := l.checkLogs(ctx, ops, used, logs); err != nil {
		return nil, err
	}
	list = make([]Status, len(cells))
	for i, c := range cells {
		list[i] = newStatus(c, known.find(c.Limit), &ops[i], used[i], clock)
		list[i].Rule, list[i].Applied = "", "" // a key may have another one
	}
	return list, nil
}

// checkOf returns the check of the smallest cost of a cell at the time clock. The
// limit may be zero.
func checkOf(c store.Cell, limit Limit, group uint32, clock int64) law.Op {
	op := law.Op{Verb: law.Check, Group: group, Cell: c.Cell, Params: c.State.Params(), Cost: 1, Count: 1}
	if !limit.IsZero() {
		op.Params = limit.r.params
		if limit.r.calendar != nil {
			op.Window = limit.r.calendar.bounds(clock)
		}
	}
	return op
}

// checksAtOnce is how many checks are sent to the store in one batch.
const checksAtOnce = 1000

// checkLogs asks the store what is in use of cells with a log.
func (l *Limiter) checkLogs(ctx context.Context, all []law.Op, used []int64, logs []int) error {
	for part := range slices.Chunk(logs, checksAtOnce) {
		ops, outs := make([]law.Op, len(part)), make([]law.Outcome, len(part))
		for k, i := range part {
			ops[k] = all[i]
		}
		if err := l.apply(ctx, ops, outs, nil); err != nil {
			return err
		}
		for k, i := range part {
			if err := outs[k].Err; err != nil {
				return err
			}
			used[i] = before(&ops[k], &outs[k])
		}
	}
	return nil
}

// names are the limits that cells can be of.
type names map[string]Limit

func naming(limits []Limit) names {
	n := make(names, len(limits)+1)
	for _, limit := range limits {
		n[limit.Name()] = limit
	}
	return n
}

// find returns the limit of a name, or of a notation; the zero Limit if it is not
// known.
func (n names) find(name string) Limit {
	limit, ok := n[name]
	if !ok {
		if parsed, err := Parse(name); err == nil && parsed.Name() == name {
			limit = parsed
		}
		n[name] = limit
	}
	return limit
}

func (l *Limiter) inspector() (store.Inspector, error) {
	if l.store == nil {
		return nil, errNoStore
	}
	i, ok := store.As[store.Inspector](l.store)
	if !ok {
		return nil, fmt.Errorf("list cells: %w", ErrUnsupported)
	}
	return i, nil
}

// newStatus describes a cell of which used credits are in use at the time clock, by
// the op that asked. limit may be zero.
func newStatus(c store.Cell, limit Limit, op *law.Op, used, clock int64) Status {
	at := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	s := Status{
		Limit:     c.Limit,
		Key:       c.Key,
		Exists:    c.State.Kind != 0,
		Used:      costOf(used, &op.Params, true),
		Remaining: -1,
		At:        at(clock),
	}
	if s.Exists {
		s.EmptyAt = at(c.State.EmptyAt)
		if c.State.At > 0 {
			s.UpdatedAt = at(c.State.At)
		}
	}
	if c.State.BlockedUntil > clock {
		s.BlockedUntil, s.Reason = at(c.State.BlockedUntil), c.Reason
	}
	if !limit.IsZero() {
		s.Rule, s.Applied = limit.r.notation, limit.r.applied
		f := figures{op: op, out: &law.Outcome{Used: used, State: c.State, Clock: clock}}
		s.Capacity = costOf(f.capacity(), &op.Params, false)
		s.Remaining, s.RemainingNanos = op.Params.Figure(f.room())
	}
	return s
}

// KeyCounts returns how many keys the limits of the store have: those with the most. A store in memory keeps a bounded
// number of keys, and says which; others count now and then. ErrUnsupported if the store counts no keys.
func (l *Limiter) KeyCounts(ctx context.Context) (counts []store.KeyCount, err error) {
	i, err := l.inspector()
	if err != nil {
		return nil, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	return i.KeyCounts(ctx)
}
