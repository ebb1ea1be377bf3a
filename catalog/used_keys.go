package catalog

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// usedWork is the keys that a change concerns, as they were before it.
type usedWork struct {
	c     *Catalog
	used  Used
	keys  []usedKey
	clock int64 // the store's, when keys were read last

	every bool           // reset keys for which the same limit holds as before, too
	from  headgate.Limit // not zero: what the limit was for all keys, of a change that was made at since
	since int64
}

// usedKey is a key before the change.
type usedKey struct {
	cell  law.Cell
	was   headgate.Limit // that held for it; zero: none did
	state law.State
	used  int64 // credits of was; of a log at most that
}

// span is the keys of one limit that a change may concern.
type span struct {
	limit, key string
	one        bool // key alone; else all that begin with it
}

// readUsed reads the keys that an edit concerns; nil if it leaves alone what they have used.
func (c *Catalog) readUsed(ctx context.Context, now *snapshot, used Used, edit []store.Item) (*usedWork, error) {
	if used.Mode == KeepUsed {
		return nil, nil
	}
	if used.Mode < 0 || int(used.Mode) >= len(usedModes) {
		return nil, headgate.Invalid("used", "%s is not known", used.Mode)
	}
	spans, err := now.spans(edit)
	if err != nil {
		return nil, err
	}
	w := &usedWork{c: c, used: used}
	for _, s := range spans {
		if err := w.read(ctx, s); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// spans returns which keys an edit concerns, each once. It refuses limits of concurrency that it changes.
func (s *snapshot) spans(edit []store.Item) (list []span, err error) {
	add := func(name, key string, one bool) error {
		if s.limits[name].Concurrency() {
			return errHeld(name)
		}
		list = append(list, span{name, key, one})
		return nil
	}
	for _, i := range edit {
		// Of what is of single keys, items has nothing.
		if have, ok := s.items[i.ID()]; ok && have.Text == i.Text && have.Until == i.Until {
			continue // a description was changed, say
		}
		switch i.Kind {
		case store.KindLimit:
			if d, wrong := definition(&i); wrong == nil && d.Concurrency() {
				return nil, errHeld(i.Name)
			}
			err = add(i.Name, "", false)
		case store.KindPlan:
			err = add(i.Key, "", false)
		case store.KindOverride, store.KindPrefixOverride:
			err = add(i.Name, i.Key, i.Kind == store.KindOverride)
		case store.KindAssignment, store.KindPrefixAssignment:
			for name, d := range s.limits {
				if !d.Concurrency() {
					list = append(list, span{name, i.Key, i.Kind == store.KindAssignment})
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return distinct(list), nil
}

// distinct leaves out what others contain.
func distinct(list []span) (rest []span) {
	seen, whole := map[span]bool{}, map[string]bool{}
	for _, s := range list {
		whole[s.limit] = whole[s.limit] || s.key == "" && !s.one
	}
	for _, s := range list {
		if whole[s.limit] {
			s = span{limit: s.limit}
		}
		inside := seen[s]
		for n := range len(s.key) + 1 { // of a prefix
			at := span{limit: s.limit, key: s.key[:n]}
			for _, other := range list {
				inside = inside || other == at && at != s
			}
		}
		if !inside {
			seen[s] = true
			rest = append(rest, s)
		}
	}
	return rest
}

// readAtOnce is how many cells are read in one question.
const readAtOnce = 1000

// read adds the keys of a span.
func (w *usedWork) read(ctx context.Context, s span) error {
	inspector, ok := store.As[store.Inspector](w.c.store)
	if !ok {
		return fmt.Errorf("%w: the store cannot list the keys of a limit", headgate.ErrUnsupported)
	}
	q := store.Query{Limit: s.limit, Key: s.key, HasKey: true, Max: readAtOnce}
	for {
		cells, clock, err := inspector.Cells(ctx, q)
		if err != nil {
			return err
		}
		w.clock = clock
		for i := range cells {
			if !strings.HasPrefix(cells[i].Key, s.key) {
				cells = cells[:i]
				break
			}
		}
		if err := w.add(ctx, cells); err != nil {
			return err
		}
		w.used.tell(UsedReading, len(w.keys), 0)
		switch {
		case s.one:
			return nil
		case q.HasKey: // the key that is the prefix itself; those behind it follow
			q.HasKey, q.Key, q.After = false, "", law.Cell{Limit: s.limit, Key: s.key}
		case len(cells) < readAtOnce:
			return nil
		default:
			q.After = cells[len(cells)-1].Cell
		}
	}
}

// add adds cells with the limits that hold for them now.
func (w *usedWork) add(ctx context.Context, cells []store.Cell) error {
	if len(cells) == 0 {
		return nil
	}
	limits, err := w.holding(ctx, len(cells), func(i int) law.Cell { return cells[i].Cell })
	if err != nil {
		return err
	}
	for i, c := range cells {
		k := usedKey{cell: c.Cell, was: limits[i], state: c.State}
		if !w.from.IsZero() {
			if limits[i].String() != w.c.Limit(c.Limit, headgate.Limit{}).String() {
				continue // a plan or an override holds
			}
			k.was = w.from
		}
		if w.used.Mode == ScaleUsed {
			if k.was.IsZero() {
				continue
			}
			op := law.Op{Params: k.was.Params(), Window: k.was.Boundaries(w.clock)}
			if k.used = c.State.InUse(&op, w.clock); k.used == 0 {
				continue
			}
		}
		w.keys = append(w.keys, k)
	}
	return nil
}

// holding returns which limits hold for cells; a zero Limit where there is none of that name.
func (w *usedWork) holding(ctx context.Context, n int, cell func(int) law.Cell) ([]headgate.Limit, error) {
	limits := make([]headgate.Limit, n)
	err := w.c.findAll(ctx, n, func(i int) (string, string) {
		c := cell(i)
		if _, ok := w.c.Lookup(c.Limit); !ok {
			return "", ""
		}
		return c.Limit, c.Key
	}, func(i int, l headgate.Limit) { limits[i] = l })
	return limits, err
}

// kept reports whether nothing was charged to a key, or given back, since it was read. A decision of another limit
// may have converted it, as one by the limit is does.
func (k *usedKey) kept(state *law.State, is *law.Params, turn *law.Op) bool {
	if alike(k.state, *state) {
		return true
	}
	op := *turn
	op.Params = *is
	return alike(law.Decide(k.state, &op, state.At, 0, noEntries{}).Base, *state)
}

// added reports whether a key was charged since it was read, and nothing else became of it: of what was used then
// all counts. That is known of a window that one step empties.
func (k *usedKey) added(state *law.State) bool {
	was := k.state
	was.Level = state.Level
	return was.Kind == law.Bucket && k.was.Params().Drain >= k.was.Params().Capacity && state.Level >= k.state.Level &&
		alike(was, *state)
}

// alike leaves out what a refusal changes.
func alike(a, b law.State) bool {
	a.EmptyAt, a.BlockedUntil, b.EmptyAt, b.BlockedUntil = 0, 0, 0, 0
	return a == b
}

// noEntries is a log without entries: the state of a cell says all that is asked here.
type noEntries struct{}

func (noEntries) Sum(int64, int64) int64     { return 0 }
func (noEntries) Freed(int64, int64) int64   { return law.Never }
func (noEntries) Entry(int64) (int64, int64) { return 0, 0 }
