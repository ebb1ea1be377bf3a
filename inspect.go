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

// Status is the state of a key of a limit at a time.
type Status struct {
	Limit  string // name of the limit
	Key    string
	Exists bool // false: the key was never used, or was forgotten, which is the same
	// Rule is the notation of the limit that is in force for the key. It is empty if the limit's parameters are not
	// known here, and in the results of List. Applied says why that limit is in force; see [Decision.Applied].
	Rule, Applied string

	Used      Cost  // cost in use now, rounded up to a millionth, or to the digits of the limit
	Capacity  Cost  // the most that can be in use; zero if the limit's parameters are not known here
	Remaining int64 // whole units of cost that could pass now; -1 if Capacity is not known

	RemainingNanos int32 // the fraction of Remaining; see [Decision.RemainingNanos]

	At           time.Time // the store's time of this status
	UpdatedAt    time.Time // time of the last change, or start of the step or window that it fell into; zero: none
	EmptyAt      time.Time // from then on nothing is in use, if nobody charges the key; it may be in the past
	BlockedUntil time.Time // zero: not blocked
	Reason       string    // reason of the block, if one was given

	History []Attempt // newest first, for limits that keep a log
}

// Attempt is an entry in the log of a key.
type Attempt struct {
	Number  int64 // transaction number
	At      time.Time
	Cost    Cost // rounded up as Status.Used
	Allowed bool
}

// maxHistory is how many entries of a log Inspect returns at most.
const maxHistory = 20

// Inspect returns the status of one key of a limit. It changes nothing and takes no lock. It returns ErrUnsupported if
// the store is no [store.Inspector].
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
	s = statusOfCheck(cell, limit, &op, &out)
	if op.Params.Kind == law.Log {
		s.History, err = attemptsOf(ctx, inspector, op.Cell, &op.Params, maxHistory)
	}
	return s, err
}

// Attempts returns the newest n attempts of a key, newest first. There are none if the limit keeps no log. It changes
// nothing and takes no lock. It returns ErrUnsupported if the store is no [store.Inspector].
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
	r := resolved[0].Limit.r
	return attemptsOf(ctx, inspector, law.Cell{Limit: r.name, Key: key}, &r.params, n)
}

// attemptsOf reads the newest n attempts of a cell from the store.
func attemptsOf(ctx context.Context, s store.Inspector, c law.Cell, p *law.Params, n int) (
	list []Attempt, err error,
) {
	entries, err := s.Entries(ctx, c, n)
	for _, e := range entries {
		list = append(list, Attempt{e.Number, time.UnixMicro(e.At).UTC(), costOf(e.Cost, p, true), e.Granted})
	}
	return list, err
}

// statusOfCheck returns the status of a cell from the outcome of a check.
func statusOfCheck(cell store.Cell, limit Limit, op *law.Op, out *law.Outcome) Status {
	return newStatus(cell, limit, op, usedBefore(op, out), out.Clock)
}

// usedBefore returns the credits that were in use before a check, whose outcome counts the credits it would grant.
func usedBefore(op *law.Op, out *law.Outcome) int64 { return out.Used - out.Granted*op.Cost }

// List returns the status of the cells of the store that q selects. It takes the parameters of limits with a name from
// limits, and those of others from their notation. For a limit that is in neither, Capacity is zero, and Used is up to
// the drain of one step too high, or more if charges were given back. List changes nothing and takes no lock. It
// returns ErrUnsupported if the store is no [store.Inspector].
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
	byName := make(map[string]Limit, len(limits)+1)
	for _, limit := range limits {
		byName[limit.Name()] = limit
	}
	ops, usedCredits := make([]law.Op, len(cells)), make([]int64, len(cells))
	var logIndexes []int // indexes of cells whose usage must be computed from the entries of their log
	for i, c := range cells {
		ops[i] = checkOf(c, findLimit(byName, c.Limit), uint32(i+1), clock)
		if usedCredits[i] = c.State.InUse(&ops[i], clock); usedCredits[i] > 0 && c.State.Kind == law.Log &&
			ops[i].Params.Kind == law.Log {
			logIndexes = append(logIndexes, i)
		}
	}
	if err := l.checkLogs(ctx, ops, usedCredits, logIndexes); err != nil {
		return nil, err
	}
	list = make([]Status, len(cells))
	for i, c := range cells {
		list[i] = newStatus(c, findLimit(byName, c.Limit), &ops[i], usedCredits[i], clock)
		list[i].Rule, list[i].Applied = "", "" // another limit may be in force for this key
	}
	return list, nil
}

// checkOf returns an op that checks the smallest cost on a cell at the time clock. The limit may be zero.
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

// maxBatchChecks is how many checks are sent to the store in one batch at most.
const maxBatchChecks = 1000

// checkLogs checks the ops at indexes, whose cells have a log, and writes their credits in use into used.
func (l *Limiter) checkLogs(ctx context.Context, ops []law.Op, used []int64, indexes []int) error {
	for part := range slices.Chunk(indexes, maxBatchChecks) {
		r := newRequest(len(part))
		for k, i := range part {
			r.ops[k] = ops[i]
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

// findLimit returns the limit that byName has for a name. If it has none, findLimit adds and returns the limit whose
// notation the name is, or else the zero Limit.
func findLimit(byName map[string]Limit, name string) Limit {
	limit, ok := byName[name]
	if !ok {
		if parsed, err := Parse(name); err == nil && parsed.Name() == name {
			limit = parsed
		}
		byName[name] = limit
	}
	return limit
}

// inspector returns the store as a store.Inspector, or ErrUnsupported. The error says that the store cannot do action.
func (l *Limiter) inspector(action string) (store.Inspector, error) {
	if l.store == nil {
		return nil, errNoStore
	}
	i, ok := store.As[store.Inspector](l.store)
	if !ok {
		return nil, fmt.Errorf("%s: %w", action, ErrUnsupported)
	}
	return i, nil
}

// newStatus returns the status of a cell with used credits in use at the time clock. op is one on that cell; limit is
// the limit in force, or zero if it is not known.
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
		f := chargeFigures{op: op, out: &law.Outcome{Used: used, State: c.State, Clock: clock}}
		s.Capacity = costOf(f.op.Params.Capacity, &op.Params, false)
		s.Remaining, s.RemainingNanos = op.Params.Figure(f.room())
	}
	return s
}

// KeyCounts returns how many keys limits have in the store, for the limits with the most keys. A store in memory keeps
// a bounded number of keys, and reports the bound; other stores count from time to time. It returns ErrUnsupported if
// the store counts no keys.
func (l *Limiter) KeyCounts(ctx context.Context) (counts []store.KeyCount, err error) {
	inspector, err := l.inspector("count keys")
	if err != nil {
		return nil, err
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	return inspector.KeyCounts(ctx)
}

// Usage is the usage of a limit by a key, and when the next charge can pass. Its Status has no History.
type Usage struct {
	Status
	// RetryAfter is the time until a cost of 1 can pass if nobody else comes, or, if the limit lets less than 1 pass at
	// once, until its smallest amount can: 0 if it can now, or Never. ResetAfter is the time until the key is unused
	// and not blocked.
	RetryAfter, ResetAfter time.Duration
}

// Usage returns the usage of each limit by a key, in the order of limits. It changes nothing and takes no lock. It
// reads from the store once for each thousand limits, and once more for each block, to get the Reason; a store that is
// no [store.Inspector] has no reasons. If a limit cannot be read, Usage returns an error, as [Limiter.Check] would.
func (l *Limiter) Usage(ctx context.Context, key string, limits ...Limit) ([]Usage, error) {
	charges := make([]Charge, len(limits))
	for i, limit := range limits {
		charges[i] = Charge{Limit: limit, Key: key}
	}
	return l.UsageOf(ctx, charges)
}

// UsageOf returns the usage of the limit of each charge by its key. It ignores Cost and Keep, and changes nothing.
func (l *Limiter) UsageOf(ctx context.Context, charges []Charge) (list []Usage, err error) {
	charges = slices.Clone(charges)
	for i := range charges {
		charges[i].Cost, charges[i].Keep = Cost{}, Headroom{}
	}
	ctx, d := withDeadline(ctx, l.timeout)
	defer d.end(&err, store.ErrUnavailable)
	for part := range slices.Chunk(charges, maxBatchChecks) {
		usages, err := l.readUsage(ctx, part)
		if err != nil {
			return nil, err
		}
		list = append(list, usages...)
	}
	return list, nil
}

// readUsage reads the usage for unresolved charges from the store, in one batch.
func (l *Limiter) readUsage(ctx context.Context, unresolved []Charge) ([]Usage, error) {
	if l.store == nil {
		return nil, errNoStore
	}
	charges, err := l.resolve(ctx, unresolved, attempts{})
	if err != nil {
		return nil, err
	}
	r := newRequest(len(charges))
	spec := verbSpec{verb: law.Check, toCredits: Cost.chargeCredits}
	for i := range charges {
		if err := r.part(i, i+1).compile(l.clock, uint32(i+1), &spec, charges[i:i+1]); err != nil {
			return nil, err
		}
		r.ops[i].Cost = probeCost(&r.ops[i].Params)
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
		if _, stale := errors.AsType[*staleError](err); stale { // another limit is in force by now
			c := &unresolved[i]
			limit, r.ops[i], r.outs[i], err = l.callOne(ctx, law.Check, c.Limit, c.Key, func(op *law.Op) {
				op.Cost = probeCost(&op.Params)
			})
		}
		if err == nil {
			list[i], err = l.usageFromCheck(ctx, limit, &r.ops[i], &r.outs[i])
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// probeCost returns the credits that a check for Usage asks for: a cost of 1, or the smallest amount of a limit that
// lets less than 1 pass at once.
func probeCost(p *law.Params) int64 {
	if p.Capacity >= p.Unit || isClosed(p) {
		return p.Unit
	}
	return max(1, p.Unit/pow10[p.Digits])
}

// usageFromCheck returns the Usage of a limit from the outcome of a check of its probeCost.
func (l *Limiter) usageFromCheck(ctx context.Context, limit Limit, op *law.Op, out *law.Outcome) (u Usage, err error) {
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if cell.State.BlockedUntil > out.Clock {
		if cell.Reason, err = l.reason(ctx, op.Cell); err != nil {
			return u, err
		}
	}
	f := chargeFigures{op, out, out.Granted == op.Count}
	d := f.decision(f.fits, 0)
	u = Usage{Status: statusOfCheck(cell, limit, op, out), RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter}
	return u, nil
}

// reason returns the reason of a block, or "" if the store is no Inspector.
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
