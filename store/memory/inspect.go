package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Cells implements store.Inspector. A list needs Config.Names, and locks one table at a time. A query for one limit and
// key does not need Config.Names.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	if err := q.Valid(); err != nil {
		return nil, 0, err
	}
	clock = s.clock()
	if q.Limit != "" && q.HasKey {
		return s.lookupCell(&q, clock), clock, nil
	}
	if !s.names {
		return nil, 0, fmt.Errorf("%w: this memory store does not keep the names of keys; set Names in "+
			"memory.Config to list them", store.ErrSetup)
	}
	// One list at a time: each visits all keys, and several would leave no processor to decisions.
	if !sched.Either(s.listing, ctx.Done()) {
		return nil, 0, fmt.Errorf("%w: other lists of keys are being made: %w", store.ErrUnavailable, ctx.Err())
	}
	defer func() { s.listing <- struct{}{} }()
	clock = s.clock()
	page := firstCells{max: q.PageSize()}
	for i := range s.tables {
		if s.tables[i].Load() != nil {
			t := s.lock(i)
			s.addMatches(t, &q, clock, &page)
			s.unlockAt(i)
		}
	}
	page.trim()
	return page.cells, clock, nil
}

// firstCells collects the max first cells, in the order of lists, of those that are added. It holds up to twice as
// many until it is trimmed, so a page of a million keys takes the memory of two pages.
type firstCells struct {
	max       int
	cells     []store.Cell
	isTrimmed bool // the max first cells are in order; cells that were added since stand after them
}

// mayAdd reports whether a cell may be among the first. It does not keep the key.
func (s *firstCells) mayAdd(limit string, key []byte) bool {
	if !s.isTrimmed {
		return true
	}
	last := &s.cells[s.max-1]
	return limit < last.Limit || limit == last.Limit && string(key) < last.Key
}

func (s *firstCells) add(c *store.Cell) {
	if s.cells = append(s.cells, *c); len(s.cells) == 2*s.max {
		s.trim()
		s.isTrimmed = true
	}
}

// trim sorts the cells, and drops all but the first max.
func (s *firstCells) trim() {
	slices.SortFunc(s.cells, func(a, b store.Cell) int { return a.Compare(b.Cell) })
	s.cells = s.cells[:min(s.max, len(s.cells))]
}

// addMatches adds to page the cells of a locked table that match q.
func (s *Store) addMatches(t *table, q *store.Query, clock int64, page *firstCells) {
	for i := range t.slots {
		sl := &t.slots[i]
		if sl.lo.Load() == 0 {
			continue
		}
		limit := s.limitAt(t, i).name
		_, key := t.names.entry(i)
		if q.Limit != "" && q.Limit != limit || q.HasKey && q.Key != string(key) || !page.mayAdd(limit, key) ||
			limit < q.After.Limit || limit == q.After.Limit && string(key) <= q.After.Key && q.After != (law.Cell{}) {
			continue
		}
		c := s.cellAt(t, i, law.Cell{Limit: limit, Key: string(key)})
		if matches(q, &c.State, clock) {
			page.add(&c)
		}
	}
}

// lookupCell returns the one cell of a query for a limit and a key, if it exists and matches the query.
func (s *Store) lookupCell(q *store.Query, clock int64) []store.Cell {
	id := law.Cell{Limit: q.Limit, Key: q.Key}
	h := s.hash(&id)
	ti := s.tableOf(h)
	t := s.lock(ti)
	defer s.unlockAt(ti)
	i := t.find(h)
	if i < 0 || q.After != (law.Cell{}) && id.Compare(q.After) <= 0 {
		return nil
	}
	c := s.cellAt(t, i, id)
	if !matches(q, &c.State, clock) {
		return nil
	}
	return []store.Cell{c}
}

// limitAt returns the limit of the cell at slot i of a locked table.
func (s *Store) limitAt(t *table, i int) *limit {
	if n := idOf(t.slots[i].waitUnlocked()); n != idRich {
		return s.defs.get(n).limit
	}
	return t.richAt(i).limit
}

// cellAt returns the cell at slot i of a locked table.
func (s *Store) cellAt(t *table, i int, id law.Cell) store.Cell {
	c := store.Cell{Cell: id}
	sl := &t.slots[i]
	word := sl.waitUnlocked()
	if n := idOf(word); n != idRich {
		c.State = s.defs.get(n).params.PlainState(levelOf(word), sl.time())
		return c
	}
	r := t.richAt(i)
	word = r.lock()
	c.State, c.Reason = r.load(word), r.reason
	r.word.Store(word)
	return c
}

// matches reports whether the state of a cell matches q. The caller has compared its name.
func matches(q *store.Query, st *law.State, clock int64) bool {
	return st.Kind != 0 && (!q.Blocked || st.BlockedUntil > clock)
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
	if j < 0 || idOf(t.slots[j].waitUnlocked()) != idRich {
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
