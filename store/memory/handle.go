package memory

import (
	"sync/atomic"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// handle is a store.Pin. It points to the object of its cell while there is
// one. When the cell is forgotten or replaced, its object is marked as gone,
// and the handle looks for the cell again: so a handle needs no end, and holds
// nothing but itself.
type handle struct {
	store  *Store
	cell   law.Cell
	params law.Params
	hash   hash
	at     atomic.Pointer[rich] // of a cell with these params; nil: not known
}

// Pin implements store.Pinner. A cell that is asked for by a handle is an
// object of its own from then on, until it is forgotten, and counts as one
// key.
func (s *Store) Pin(cell law.Cell, p *law.Params) store.Pin {
	return &handle{store: s, cell: cell, params: *p, hash: s.hash(&cell)}
}

// TakeOne implements store.Pin.
func (h *handle) TakeOne(cost int64) (b store.Brief, ok bool) {
	s := h.store
	if cost < 1 || cost > law.Max || s.closed.Load() {
		return b, false
	}
	r := h.at.Load()
	if r == nil {
		ok = h.find(&b, cost)
		return b, ok
	}
	_, _, res := s.charge(&b, &r.pair, idPlain, r.params, cost, s.coarse == nil, nil, 0)
	if res == changed {
		ok = h.find(&b, cost)
		return b, ok
	}
	return b, res == decided
}

// find decides by the cell as it stands in the store, and keeps it.
func (h *handle) find(b *store.Brief, cost int64) bool {
	_, _, r, res := h.store.takeLocked(b, h.hash, &h.cell, &h.params, cost, true)
	if res == decided && r != nil {
		h.at.Store(r)
	}
	return res == decided
}
