package headgate

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Limiter decides about charges by asking a store. It is safe for concurrent
// use, starts goroutines for the leases that it holds and no other, and holds no
// state of its own but who waits: any number of limiters, in any number of
// processes, share the limits of one store.
type Limiter struct {
	store  store.Store
	direct store.OneTaker // store, if it is one
	clock  store.Clock
	turns  turns // of those who wait

	timeout time.Duration // of a question to the store; 0: none
}

// Config adjusts a Limiter. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock guesses in which window of the calendar the store's clock stands;
	// a wrong guess costs one more question to the store, nothing else. Nil:
	// this machine's.
	Clock store.Clock
	// Timeout is how long a call that decides at once waits for the store, where
	// the context has no earlier deadline. After it, the error says what is known:
	// that nothing was charged, or store.ErrUnknownOutcome, for example where a
	// transaction of somebody else's holds the cell. Wait, Await and Hold, their
	// kin, and what is built on them wait for as long as their context lasts, for
	// the store too. Zero: DefaultTimeout. Below 0: none.
	//
	// The RetryFor of the drivers is for questions without a deadline: of calls
	// that wait, and of programs that call a Store themselves.
	Timeout time.Duration
}

// New returns a limiter over a store. The store stays the caller's to close. Without
// one, and of the zero Limiter, each call is ErrInvalid.
func New(s store.Store, cfg *Config) *Limiter {
	l := &Limiter{store: s, clock: store.SystemClock, timeout: cfg.timeout(s)}
	l.direct, _ = s.(store.OneTaker)
	if cfg != nil && cfg.Clock != nil {
		l.clock = cfg.Clock
	}
	return l
}

var errNoStore = Invalid("limiter", "has no store; make it with headgate.New")

// Allow takes one unit of a limit for a key.
func (l *Limiter) Allow(ctx context.Context, limit Limit, key string) (d Decision, err error) {
	if l.quick(ctx, &d, limit, key, Cost{}) {
		return d, nil
	}
	return l.ask(ctx, law.Take, []Charge{{Limit: limit, Key: key}})
}

// Take takes all of the charges, or none. Errors are ErrInvalid for what is
// wrong with the charges, or the store's; with an error, nothing is known to
// be admitted.
func (l *Limiter) Take(ctx context.Context, charges ...Charge) (d Decision, err error) {
	if len(charges) == 1 && l.quick(ctx, &d, charges[0].Limit, charges[0].Key, charges[0].Cost) {
		return d, nil
	}
	return l.ask(ctx, law.Take, charges)
}

// Check returns the decision that Take would return now, and takes nothing.
func (l *Limiter) Check(ctx context.Context, charges ...Charge) (Decision, error) {
	return l.ask(ctx, law.Check, charges)
}

func (l *Limiter) ask(ctx context.Context, verb law.Verb, charges []Charge) (Decision, error) {
	if err := takeable(charges); err != nil {
		return Decision{}, err
	}
	sheet := sheets.Get().(*sheet)
	defer sheet.free()
	ops, outs := sheet.of(len(charges))
	return l.decide(ctx, verb, charges, ops, outs)
}

// decide asks the store about charges, with ops and outcomes to write on.
func (l *Limiter) decide(ctx context.Context, verb law.Verb, charges []Charge, ops []law.Op, outs []law.Outcome) (Decision, error) {
	if err := l.compile(ops, verb, 1, charges); err != nil {
		return Decision{}, err
	}
	if err := l.apply(ctx, ops, outs, calendars(nil, 0, charges)); err != nil {
		return Decision{}, err
	}
	if err := outs[0].Err; err != nil {
		return Decision{}, err
	}
	return decide(ops, outs), nil
}

// Filled is what became of a FillUp.
type Filled struct {
	Accepted Cost // what fitted in, rounded down to a millionth; may be all or nothing
	Brim     bool // the level stands at the capacity
	Decision Decision
}

// FillUp takes as much of a charge as fits, to the brim. Decision.Allowed
// tells whether anything did.
func (l *Limiter) FillUp(ctx context.Context, c Charge) (Filled, error) {
	var ops [1]law.Op
	var outs [1]law.Outcome
	charges := []Charge{c}
	if err := takeable(charges); err != nil {
		return Filled{}, err
	}
	if err := l.compile(ops[:], law.Take, 1, charges); err != nil {
		return Filled{}, err
	}
	ops[0].Count, ops[0].Cost, ops[0].Partial = ops[0].Cost, 1, true
	if err := l.apply(ctx, ops[:], outs[:], calendars(nil, 0, charges)); err != nil {
		return Filled{}, err
	}
	if err := outs[0].Err; err != nil {
		return Filled{}, err
	}
	p := &ops[0].Params
	return Filled{
		Accepted: costOf(outs[0].Granted, p.Unit, false),
		Brim:     outs[0].Used >= p.Capacity,
		Decision: decide(ops[:], outs[:]),
	}, nil
}

// Block refuses every charge of a limit for a key until d from now, whatever
// its level, and says why. A d of zero lifts the block, also one that a limit
// has set by itself. It replaces an earlier block. The key may be that of a shared
// cell, as List shows it: then all who share are blocked.
func (l *Limiter) Block(ctx context.Context, limit Limit, key string, d time.Duration, reason string) (Status, error) {
	if d < 0 {
		return Status{}, Invalid("for", "%s is negative; 0 lifts a block", d)
	}
	if d > 0 {
		if err := checkPeriod("for", d); err != nil {
			return Status{}, err
		}
	}
	op, out, err := l.one(ctx, law.Block, limit, key, func(op *law.Op) {
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
// there was anything to forget. A history is kept. The key may be that of a shared
// cell, as List shows it: then all who share are forgiven.
func (l *Limiter) Reset(ctx context.Context, limit Limit, key string) (existed bool, err error) {
	op, out, err := l.one(ctx, law.Reset, limit, key, nil)
	l.turns.wake(op.Cell)
	return out.Granted > 0, err
}

// one applies a single op that charges nothing, for operators: its key may be that of
// a cell that keys share, as List shows it.
func (l *Limiter) one(ctx context.Context, verb law.Verb, limit Limit, key string, set func(*law.Op)) (law.Op, law.Outcome, error) {
	var ops [1]law.Op
	var outs [1]law.Outcome
	charges := []Charge{{Limit: limit, Key: key}}
	if err := l.compileWith(ops[:], verb, 1, charges, Cost.credits); err != nil {
		return ops[0], outs[0], err
	}
	if err := law.ValidGroup(ops[:]); err != nil {
		return ops[0], outs[0], err
	}
	if set != nil {
		set(&ops[0])
	}
	if err := l.apply(ctx, ops[:], outs[:], calendars(nil, 0, charges)); err != nil {
		return ops[0], outs[0], err
	}
	return ops[0], outs[0], outs[0].Err
}

// takeable refuses charges that are not taken but acquired.
func takeable(charges []Charge) error {
	for _, c := range charges {
		if c.Limit.Concurrency() {
			return Invalid("limit", "%s is acquired and released, not taken", c.Limit.Algorithm())
		}
	}
	return nil
}

// compile turns the charges of one request into ops.
func (l *Limiter) compile(ops []law.Op, verb law.Verb, group uint32, charges []Charge) error {
	if err := l.compileWith(ops, verb, group, charges, Cost.credits); err != nil {
		return err
	}
	for i := range ops {
		if law.IsShared(ops[i].Cell) {
			return law.ValidKey(ops[i].Cell.Key) // which is not
		}
	}
	return law.ValidGroup(ops)
}

// compileWith is compile with another meaning of the costs, and not yet valid.
func (l *Limiter) compileWith(ops []law.Op, verb law.Verb, group uint32, charges []Charge, credits func(Cost, int64) (int64, error)) error {
	if len(charges) == 0 {
		return Invalid("charges", "there is none")
	}
	for i, c := range charges {
		if c.Limit.IsZero() {
			return Invalid("limit", "is missing")
		}
		r := c.Limit.r
		cost, err := credits(c.Cost, r.params.Unit)
		if err != nil {
			return err
		}
		ops[i] = law.Op{
			Verb:   verb,
			Group:  group,
			Cell:   law.Cell{Limit: r.name, Key: c.Key},
			Params: r.params,
			Cost:   cost,
			Count:  1,
		}
		if r.calendar != nil {
			ops[i].Window = r.calendar.bounds(l.clock())
		}
	}
	return nil
}

// calendars notes at index i and up which calendars the charges follow. It
// stays nil as long as none does, as mostly.
func calendars(list []*calendar, i int, charges []Charge) []*calendar {
	for k, c := range charges {
		if c.Limit.IsZero() {
			continue // which is found out later
		}
		if cal := c.Limit.r.calendar; cal != nil {
			list = slices.Grow(list, i+len(charges)-len(list))[:i+len(charges)]
			list[i+k] = cal
		}
	}
	return list
}

// apply asks the store, and asks again about those requests whose calendar
// boundaries did not contain the store's time: cals says which calendars the
// ops follow, as far as it reaches.
func (l *Limiter) apply(ctx context.Context, ops []law.Op, outs []law.Outcome, cals []*calendar) (err error) {
	if l.store == nil {
		return errNoStore
	}
	ctx, b := l.bound(ctx)
	defer b.end(&err, store.ErrUnknownOutcome)
	if err := l.store.Apply(ctx, ops, outs); err != nil {
		store.Void(outs)
		return err
	}
	if cals == nil {
		return nil
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		for try := 0; slices.ContainsFunc(outs[i:j], isStale); try++ {
			if try == 3 { // the store's clock is not one
				return fmt.Errorf("%w: the store's time keeps leaving the calendar of %q", store.ErrSetup, ops[i].Cell.Limit)
			}
			for k := i; k < j; k++ {
				if k < len(cals) && cals[k] != nil && outs[k].Stale {
					ops[k].Window = cals[k].bounds(outs[k].Clock)
				}
			}
			if err := l.store.Apply(ctx, ops[i:j], outs[i:j]); err != nil {
				for k := i; k < j; k++ { // the other requests have their answers
					outs[k] = law.Outcome{Err: err}
				}
			}
		}
		i = j
	}
	return nil
}

func isStale(out law.Outcome) bool { return out.Stale }
