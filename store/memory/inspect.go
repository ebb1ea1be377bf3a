package memory

import (
	"cmp"
	"context"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Cells implements store.Inspector.
func (s *Store) Cells(ctx context.Context, q store.Query) (cells []store.Cell, clock int64, err error) {
	if err := s.ready(ctx); err != nil {
		return nil, 0, err
	}
	clock = s.clock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for id, c := range sh.cells {
			if c.rec.State.Kind != 0 && selects(&q, id, &c.rec.State, clock) {
				cells = append(cells, store.Cell{Cell: id, State: c.rec.State, Reason: c.rec.Reason})
			}
		}
		sh.mu.Unlock()
	}
	slices.SortFunc(cells, func(a, b store.Cell) int { return compare(a.Cell, b.Cell) })
	most := q.Max
	if most <= 0 {
		most = store.DefaultMax
	}
	return cells[:min(len(cells), most)], clock, nil
}

func selects(q *store.Query, id law.Cell, st *law.State, clock int64) bool {
	return (q.Limit == "" || q.Limit == id.Limit) &&
		(!q.HasKey || q.Key == id.Key) &&
		(!q.Blocked || st.BlockedUntil > clock) &&
		(q.After == law.Cell{} || compare(id, q.After) > 0)
}

func compare(a, b law.Cell) int {
	return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Key, b.Key))
}

// Entries implements store.Inspector.
func (s *Store) Entries(ctx context.Context, id law.Cell, n int) ([]law.Entry, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	sh := &s.shards[s.shardOf(&id)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	c, ok := sh.cells[id]
	if !ok || c.log == nil {
		return nil, nil
	}
	list := slices.Clone(c.log.list)
	slices.SortFunc(list, func(a, b law.Entry) int { return cmp.Compare(b.Number, a.Number) })
	return list[:min(len(list), n)], nil
}
