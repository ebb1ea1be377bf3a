package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Cells implements store.Inspector. To list them needs Config.Names; one that
// is named by its limit and key is found without.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	clock = s.clock()
	if q.Limit != "" && q.HasKey {
		return s.one(&q, clock), clock, nil
	}
	if !s.names {
		return nil, 0, fmt.Errorf("%w: this memory store does not keep the names of keys; set Names in "+
			"memory.Config to list them", store.ErrSetup)
	}
	for i := range s.tables {
		if s.tables[i].Load() != nil {
			t := s.lock(i)
			cells = s.selected(t, &q, clock, cells)
			s.unlockAt(i)
		}
	}
	slices.SortFunc(cells, func(a, b store.Cell) int { return a.Compare(b.Cell) })
	most := q.Most()
	return cells[:min(len(cells), most)], clock, nil
}

// selected appends the cells of a locked table that q selects.
func (s *Store) selected(t *table, q *store.Query, clock int64, cells []store.Cell) []store.Cell {
	for i := range t.slots {
		sl := &t.slots[i]
		if sl.lo.Load() == 0 {
			continue
		}
		c := s.cellAt(t, i, law.Cell{Limit: s.limitAt(t, i).name, Key: t.names.key(i)})
		if c.State.Kind != 0 && selects(q, c.Cell, &c.State, clock) {
			cells = append(cells, c)
		}
	}
	return cells
}

// one returns the cell that a query names, if it selects it.
func (s *Store) one(q *store.Query, clock int64) []store.Cell {
	id := law.Cell{Limit: q.Limit, Key: q.Key}
	h := s.hash(&id)
	ti := s.tableOf(h)
	t := s.lock(ti)
	defer s.unlockAt(ti)
	i := t.find(h)
	if i < 0 {
		return nil
	}
	c := s.cellAt(t, i, id)
	if c.State.Kind == 0 || !selects(q, id, &c.State, clock) {
		return nil
	}
	return []store.Cell{c}
}

// limitAt returns the limit of the cell at slot i of a locked table.
func (s *Store) limitAt(t *table, i int) *limit {
	if n := idOf(t.slots[i].settled()); n != idRich {
		return s.params.of(n).limit
	}
	return t.richAt(i).limit
}

// cellAt returns the cell at slot i of a locked table.
func (s *Store) cellAt(t *table, i int, id law.Cell) store.Cell {
	c := store.Cell{Cell: id}
	sl := &t.slots[i]
	word := sl.settled()
	if n := idOf(word); n != idRich {
		c.State = s.params.of(n).params.PlainState(levelOf(word), sl.time())
		return c
	}
	r := t.richAt(i)
	word = r.lock()
	c.State, c.Reason = r.load(word), r.reason
	r.word.Store(word)
	return c
}

func selects(q *store.Query, id law.Cell, st *law.State, clock int64) bool {
	return (q.Limit == "" || q.Limit == id.Limit) &&
		(!q.HasKey || q.Key == id.Key) &&
		(!q.Blocked || st.BlockedUntil > clock) &&
		(q.After == law.Cell{} || id.Compare(q.After) > 0)
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, cell law.Cell, n int) ([]law.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	if err := store.ValidEntries(cell, n); err != nil {
		return nil, err
	}
	h := s.hash(&cell)
	i := s.tableOf(h)
	t := s.lock(i)
	defer s.unlockAt(i)
	j := t.find(h)
	if j < 0 || idOf(t.slots[j].settled()) != idRich {
		return nil, nil
	}
	r := t.richAt(j)
	word := r.lock()
	defer r.word.Store(word)
	if r.log == nil {
		return nil, nil
	}
	list := slices.Clone(r.log.list)
	slices.SortFunc(list, func(a, b law.Entry) int { return cmp.Compare(b.Number, a.Number) })
	return list[:min(len(list), n)], nil
}
