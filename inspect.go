package headgate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

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

// Attempt is an entry in the log of a key.
type Attempt struct {
	Number  int64 // transaction number
	At      time.Time
	Cost    Cost // rounded up to a millionth
	Allowed bool
}

// historyShown is how many entries of a log Inspect returns.
const historyShown = 20

// Inspect returns all that is known of one key of a limit. It changes nothing and takes no
// lock. ErrUnsupported if the store cannot be looked into.
func (l *Limiter) Inspect(ctx context.Context, limit Limit, key string) (s Status, err error) {
	inspector, err := l.inspector("list cells")
	if err != nil {
		return Status{}, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	// A check of the smallest cost brings the level forward to the present.
	limit, op, out, err := l.callOne(ctx, law.Check, limit, key, func(op *law.Op) { op.Cost = 1 })
	if err != nil {
		return Status{}, err
	}
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if cell.Reason, err = l.reason(ctx, op.Cell); err != nil {
		return Status{}, err
	}
	s = checked(cell, limit, &op, &out)
	if op.Params.Kind == law.Log {
		s.History, err = attemptsOf(ctx, inspector, op.Cell, &op.Params, historyShown)
	}
	return s, err
}

// Attempts returns the newest n attempts of a key, newest first, of a limit that keeps a log; none of another. It
// changes nothing and takes no lock. ErrUnsupported if the store cannot be looked into.
func (l *Limiter) Attempts(ctx context.Context, limit Limit, key string, n int) (list []Attempt, err error) {
	inspector, err := l.inspector("list cells")
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
	resolved, err := l.resolve(ctx, []Charge{{Limit: limit, Key: key}}, attempts{})
	if err != nil || resolved[0].Limit.Params().Kind != law.Log {
		return nil, err
	}
	return attemptsOf(ctx, inspector, law.Cell{Limit: limit.Name(), Key: key}, &resolved[0].Limit.r.params, n)
}

func attemptsOf(ctx context.Context, s store.Inspector, c law.Cell, p *law.Params, n int) (
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
	return newStatus(cell, limit, op, usedBefore(op, out), out.Clock)
}

// usedBefore returns what was in use before a check.
func usedBefore(op *law.Op, out *law.Outcome) int64 { return out.Used - out.Granted*op.Cost }

// List returns the cells of the store that q selects, with what is in use now. Limits
// with a name are known by limits; others by their notation. Of a limit that is not
// known there is no Capacity, and Used is at most the drain of one step too high, more
// only where something was given back. It changes nothing and takes no lock.
// ErrUnsupported if the store cannot be looked into.
func (l *Limiter) List(ctx context.Context, q store.Query, limits ...Limit) (list []Status, err error) {
	inspector, err := l.inspector("list cells")
	if err != nil {
		return nil, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	cells, clock, err := inspector.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	known := make(map[string]Limit, len(limits)+1)
	for _, limit := range limits {
		known[limit.Name()] = limit
	}
	ops, used := make([]law.Op, len(cells)), make([]int64, len(cells))
	var logs []int // those of which the entries say what is in use
	for i, c := range cells {
		ops[i] = checkOf(c, findIn(known, c.Limit), uint32(i+1), clock)
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
		list[i] = newStatus(c, findIn(known, c.Limit), &ops[i], used[i], clock)
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

// checkLogs reads from the store what is in use of cells with a log.
func (l *Limiter) checkLogs(ctx context.Context, all []law.Op, used []int64, logs []int) error {
	for part := range slices.Chunk(logs, checksAtOnce) {
		r := newRequest(len(part))
		for k, i := range part {
			r.ops[k] = all[i]
		}
		if err := l.decide(ctx, r); err != nil {
			return err
		}
		for k, i := range part {
			used[i] = usedBefore(&r.ops[k], &r.outs[k])
		}
	}
	return nil
}

// findIn returns the limit of a name, or of a notation, which it adds to those that are known; the zero Limit if it is
// neither.
func findIn(known map[string]Limit, name string) Limit {
	limit, ok := known[name]
	if !ok {
		if parsed, err := Parse(name); err == nil && parsed.Name() == name {
			limit = parsed
		}
		known[name] = limit
	}
	return limit
}

// inspector returns the part of the store that can be looked into; ErrUnsupported if there is none.
func (l *Limiter) inspector(what string) (store.Inspector, error) {
	if l.store == nil {
		return nil, errNoStore
	}
	i, ok := store.As[store.Inspector](l.store)
	if !ok {
		return nil, fmt.Errorf("%s: %w", what, ErrUnsupported)
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
		s.Capacity = costOf(f.op.Params.Capacity, &op.Params, false)
		s.Remaining, s.RemainingNanos = op.Params.Figure(f.room())
	}
	return s
}

// KeyCounts returns how many keys the limits of the store have: those with the most. A store in memory keeps a bounded
// number of keys, and says which; others count now and then. ErrUnsupported if the store counts no keys.
func (l *Limiter) KeyCounts(ctx context.Context) (counts []store.KeyCount, err error) {
	i, err := l.inspector("count keys")
	if err != nil {
		return nil, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	return i.KeyCounts(ctx)
}

// Usage is the use of a limit by a key, and when it can go on. Its Status has no History.
type Usage struct {
	Status
	// RetryAfter is the time until a cost of 1 can pass if nobody else comes, or the smallest amount of a limit
	// that lets less than 1 pass at once: 0 if it can now, or Never. ResetAfter is the time until the key is
	// unused again, its block over.
	RetryAfter, ResetAfter time.Duration
}

// Usage returns what a key has used of each of the limits, in their order. It changes nothing and
// takes no lock, and reads from the store once for up to a thousand limits, and once more for each of
// them that blocks the key, unless the store cannot be looked into: then the Reason of a block is
// not known. If one of the limits cannot be read, none is returned; errors are those of Check.
func (l *Limiter) Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error) {
	charges := make([]Charge, len(limits))
	for i, limit := range limits {
		charges[i] = Charge{Limit: limit, Key: key}
	}
	return l.UsageOf(ctx, charges)
}

// UsageOf returns what the key of each charge has used of its limit. It ignores the costs of the charges, and changes
// nothing.
func (l *Limiter) UsageOf(ctx context.Context, charges []Charge) (list []Usage, err error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Cost, charges[i].Keep = Cost{}, Headroom{}
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	for part := range slices.Chunk(charges, checksAtOnce) {
		some, err := l.usage(ctx, part)
		if err != nil {
			return nil, err
		}
		list = append(list, some...)
	}
	return list, nil
}

// usage makes one request to the store.
func (l *Limiter) usage(ctx context.Context, asked []Charge) ([]Usage, error) {
	charges, err := l.resolve(ctx, asked, attempts{})
	if err != nil {
		return nil, err
	}
	r := newRequest(len(charges))
	q := question{verb: law.Check, credits: Cost.charged}
	for i := range charges {
		if err := r.part(i, i+1).compile(l.clock, uint32(i+1), &q, charges[i:i+1]); err != nil {
			return nil, err
		}
		r.ops[i].Cost = probe(&r.ops[i].Params)
	}
	if err := r.valid(); err != nil {
		return nil, err
	}
	if err := l.apply(ctx, r); err != nil {
		return nil, err
	}
	list := make([]Usage, len(charges))
	for i, limit := range r.limits {
		err = r.outs[i].Err
		if _, stale := errors.AsType[*staleError](err); stale { // another limit holds by now
			limit, r.ops[i], r.outs[i], err = l.callOne(ctx, law.Check, asked[i].Limit, asked[i].Key, func(op *law.Op) {
				op.Cost = probe(&op.Params)
			})
		}
		if err == nil {
			list[i], err = l.used(ctx, limit, &r.ops[i], &r.outs[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// probe returns what a look asks for: a cost of 1, or the smallest amount of a limit that lets less pass at once.
func probe(p *law.Params) int64 {
	if p.Capacity >= p.Unit || closed(p) {
		return p.Unit
	}
	return max(1, p.Unit/pow10[p.Digits])
}

// used returns the Usage of a limit by the answer to its probe.
func (l *Limiter) used(ctx context.Context, limit Limit, op *law.Op, out *law.Outcome) (u Usage, err error) {
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if cell.State.BlockedUntil > out.Clock {
		if cell.Reason, err = l.reason(ctx, op.Cell); err != nil {
			return u, err
		}
	}
	f := figures{op, out, out.Granted == op.Count}
	d := f.decision(f.fits, 0)
	u = Usage{Status: checked(cell, limit, op, out), RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	return u, nil
}

// reason returns the reason for a block, if the store is an Inspector.
func (l *Limiter) reason(ctx context.Context, c law.Cell) (string, error) {
	inspector, ok := store.As[store.Inspector](l.store)
	if !ok {
		return "", nil
	}
	cells, _, err := inspector.Cells(ctx, store.Query{Limit: c.Limit, Key: c.Key, HasKey: true, Max: 1})
	if err != nil || len(cells) == 0 {
		return "", err
	}
	return cells[0].Reason, nil
}
