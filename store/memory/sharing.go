package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// While a limit is full, its keys that have no cell share one. It stands in a table
// like any other, under the key of law.SharedCell, and is there exactly while the
// period lasts. That no key passes more than its limit rests on four rules:
//
//  1. A cell is made only under the lock of its table, if limit.sharing was 0 when it
//     was read under that lock. The clock is read after that.
//  2. That a key has no cell, and in which period its limit is, is read under the lock
//     of the key's table. Only then is the key sent to the shared cell.
//  3. The shared cell is charged under the lock of its own table, in which it is found
//     by its generation. No generation comes twice in a store.
//  4. A period ends under that same lock, when nothing in the shared cell counts.
//
// So when a key is charged in the cell of a period, that period has lasted since the
// key was seen to have no cell (2, 3, 4). A cell of the key that was made before then
// would have been seen. One that is made later is made under the lock of the key's
// table after it was read there that no period was under way (1): so the period has
// ended, and what the key was charged in it does not count any more at the time of the
// charge, which was read later (1, 4). One that was made in between, by a caller who had
// read 0 before the period began, held the lock until it was made; so a reader that saw no
// cell did so before the period began, or saw that cell (1, 2).

// maxSharing is how many limits may share at a time. More are of somebody who invents
// limits, while all of them together are too many keys.
const maxSharing = 10_000

// share begins a period of sharing, if none is under way. The caller holds no table.
func (s *Store) share(l *limit) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if l.sharing.Load() != 0 || l.count.Load() == retired {
		return nil
	}
	if len(s.sharing) >= maxSharing {
		return fmt.Errorf("%w: %d keys are held, each could still refuse a request, and %d limits share a cell already",
			store.ErrFull, s.count.Load(), maxSharing)
	}
	s.generation++
	cell := law.SharedCell(l.name, s.generation)
	h := s.hash(&cell)
	r := &rich{params: &law.Params{}, limit: l, shared: true}
	r.set(wordOf(0, idOther), 0)
	ti := s.tableOf(h)
	s.lock(ti)
	defer s.unlockAt(ti)
	if !s.begin(l, s.generation) {
		return nil
	}
	s.room(ti, 1, true).insert(h, cell.Key, wordOf(0, idRich), 0, r)
	l.shared.Store(r)
	l.since, l.last = s.clock(), s.generation
	s.sharing[l] = struct{}{}
	return nil
}

// begin notes that a limit shares, unless it was retired.
func (s *Store) begin(l *limit, generation int64) bool {
	s.known.Lock()
	defer s.known.Unlock()
	if l.count.Load() == retired {
		return false
	}
	l.sharing.Store(generation)
	return true
}

// end ends the period of a limit, if nothing in its shared cell counts any more and
// there is room for a cell, and reports whether none is under way. The caller holds no
// table.
func (s *Store) end(l *limit, now int64) bool {
	r := l.shared.Load()
	if r == nil {
		return l.sharing.Load() == 0
	}
	if word := r.lock(); true {
		dead := r.deadAt(word)
		r.word.Store(word)
		if dead > now {
			return false
		}
	}
	if most := l.max.Load(); !s.reserve(l, most) && !s.makeRoom(l, most, now) {
		return false
	}
	defer s.release(l)
	s.turn.Lock()
	defer s.turn.Unlock()
	if l.shared.Load() != r {
		return l.sharing.Load() == 0
	}
	cell := law.SharedCell(l.name, l.sharing.Load())
	h := s.hash(&cell)
	ti := s.tableOf(h)
	t := s.lock(ti)
	defer s.unlockAt(ti)
	word := r.lock()
	if r.deadAt(word) > now {
		r.word.Store(word)
		return false
	}
	r.word.Store(wordOf(0, idGone))
	t.remove(t.find(h))
	l.shared.Store(nil)
	l.sharing.Store(0)
	l.since = 0
	delete(s.sharing, l)
	return true
}

// endAll ends the periods that are over.
func (s *Store) endAll(now int64) {
	s.turn.Lock()
	list := make([]*limit, 0, len(s.sharing))
	for l := range s.sharing {
		list = append(list, l)
	}
	s.turn.Unlock()
	for _, l := range list {
		s.end(l, now)
	}
}

// redirected answers a group of which an op has no cell, and cannot get one, because
// its limit shares, and reports whether it has. The tables of the group are locked.
func (s *Store) redirected(sc *scratch, ops []law.Op, outs []law.Outcome, now int64) bool {
	full := false
	for i := range ops {
		w := &sc.work[i]
		outs[i] = law.Outcome{Clock: now, Full: s.fullFor(&ops[i], sc.work[w.first].there)}
		full = full || outs[i].Full != 0
	}
	for i := range outs {
		outs[i].Stale = full && outs[i].Full == 0
	}
	return full
}

// fullFor returns the Full of an op, whose cell is there or not.
func (s *Store) fullFor(op *law.Op, there bool) int64 {
	switch {
	case there, op.Verb == law.Reset, op.Verb == law.Settle, op.Verb == law.Extend: // nothing to forget, nothing known
		return 0
	case law.IsShared(op.Cell):
		return law.Ended
	}
	return s.limitOf(op.Cell.Limit).sharing.Load()
}

// maxRooms is how many limits Fullness tells about at most: the fullest.
const maxRooms = 1000

// Fullness implements store.KeyCounter. The first is the whole store.
func (s *Store) Fullness(ctx context.Context) ([]store.Room, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	s.turn.Lock()
	defer s.turn.Unlock()
	s.known.Lock()
	var rooms []store.Room
	for _, l := range s.byName {
		r := store.Room{
			Limit: l.name, Keys: l.count.Load(), Max: bounded(l.max.Load()),
			Sharing: l.sharing.Load() != 0, Generation: l.last, Since: l.since,
		}
		if r.Keys > 0 || r.Sharing {
			rooms = append(rooms, r)
		}
	}
	s.known.Unlock()
	slices.SortFunc(rooms, func(a, b store.Room) int {
		return cmp.Or(cmp.Compare(b.Fill(), a.Fill()), cmp.Compare(b.Keys, a.Keys))
	})
	rooms = append(rooms[:min(len(rooms), maxRooms)], store.Room{Keys: s.count.Load(), Max: bounded(s.most)})
	slices.SortFunc(rooms, func(a, b store.Room) int { return cmp.Compare(a.Limit, b.Limit) })
	answered := s.answered.All()
	for i := range rooms {
		rooms[i].Shared = answered[rooms[i].Limit]
	}
	rooms[0].Shared = 0
	for _, n := range answered {
		rooms[0].Shared += n
	}
	return rooms, nil
}

// bounded returns a bound as store.Room tells it.
func bounded(most int64) int64 {
	if most == unbounded {
		return 0
	}
	return most
}
