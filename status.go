package headgate

import (
	"context"
	"fmt"
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

	Used      Cost  // in use, rounded up to a millionth
	Capacity  Cost  // the most that can be in use; zero if the limit's parameters are not known here
	Remaining int64 // whole units of cost that could pass now; -1 if Capacity is not known

	At           time.Time // the store's time that this holds for
	UpdatedAt    time.Time // of the last change; zero if none
	EmptyAt      time.Time // from then on the key is as good as new
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

// HistoryShown is how many entries of a log Inspect returns.
const HistoryShown = 20

// Inspect tells all about one key of a limit. It changes nothing and takes no
// lock. ErrUnsupported if the store cannot be looked into.
func (l *Limiter) Inspect(ctx context.Context, limit Limit, key string) (Status, error) {
	inspector, err := l.inspector()
	if err != nil {
		return Status{}, err
	}
	// A check of the smallest cost brings the level forward to the present.
	op, out, err := l.one(ctx, law.Check, limit, key, func(op *law.Op) { op.Cost = 1 })
	if err != nil {
		return Status{}, err
	}
	out.Used -= out.Granted * op.Cost
	cells, _, err := inspector.Cells(ctx, store.Query{Limit: op.Cell.Limit, Key: key, HasKey: true, Max: 1})
	if err != nil {
		return Status{}, err
	}
	cell := store.Cell{Cell: op.Cell, State: out.State}
	if len(cells) == 1 {
		cell.Reason = cells[0].Reason
	}
	s := newStatus(cell, limit, out.Clock)
	f := figures{&op, &out, true}
	s.Used = costOf(out.Used, op.Params.Unit, true)
	s.Remaining = f.room() / op.Params.Unit
	if op.Params.Kind == law.Log {
		entries, err := inspector.Entries(ctx, op.Cell, HistoryShown)
		if err != nil {
			return Status{}, err
		}
		for _, e := range entries {
			s.History = append(s.History, Attempt{e.Number, time.UnixMicro(e.At).UTC(), costOf(e.Cost, op.Params.Unit, true), e.Granted})
		}
	}
	return s, nil
}

// List returns the cells of the store that q selects, as they were last
// written: levels are not brought forward to the present. ErrUnsupported if
// the store cannot be looked into.
func (l *Limiter) List(ctx context.Context, q store.Query) ([]Status, error) {
	inspector, err := l.inspector()
	if err != nil {
		return nil, err
	}
	cells, clock, err := inspector.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	list := make([]Status, len(cells))
	for i, c := range cells {
		list[i] = newStatus(c, Limit{}, clock)
	}
	return list, nil
}

func (l *Limiter) inspector() (store.Inspector, error) {
	i, ok := store.As[store.Inspector](l.store)
	if !ok {
		return nil, fmt.Errorf("list cells: %w", ErrUnsupported)
	}
	return i, nil
}

// newStatus describes a cell. limit may be zero.
func newStatus(c store.Cell, limit Limit, clock int64) Status {
	at := func(us int64) time.Time { return time.UnixMicro(us).UTC() }
	s := Status{
		Limit:     c.Limit,
		Key:       c.Key,
		Exists:    c.State.Kind != 0,
		Remaining: -1,
		At:        at(clock),
	}
	if s.Exists {
		used := c.State.Level
		if c.State.Kind == law.Window {
			used += c.State.Prev // what it can count for at most
		}
		s.Used = costOf(used, c.State.Unit, true)
		s.EmptyAt = at(c.State.EmptyAt)
		if c.State.At > 0 {
			s.UpdatedAt = at(c.State.At)
		}
	}
	if c.State.BlockedUntil > clock {
		s.BlockedUntil, s.Reason = at(c.State.BlockedUntil), c.Reason
	}
	if !limit.IsZero() {
		p := limit.Params()
		s.Capacity = costOf(p.Capacity, p.Unit, false)
	}
	return s
}
