package memory

import (
	"slices"
	"sync/atomic"
)

// table is an open-addressed hash table of some hundred slots, without a
// pointer in them, so that the garbage collector has nothing to look at. It is
// read without a lock: a writer that changes which cell is where holds version odd,
// and a reader looks whether version is what it was. Changes of a cell
// alone leave version as it is, and take the lock of its pair.
type table struct {
	version atomic.Uint64
	slots   []slot
	rich    []atomic.Pointer[rich] // as many as slots, or nil: there is none

	// The rest is guarded by version.
	names   *names // of the slots; nil: they are not kept
	used    int
	hand    int          // the slot at which the search for a dead cell goes on
	logs    bool         // a rich cell may have a log
	soonest atomic.Int64 // no cell dies before this time
	_       [32]byte     // to 128 bytes: the fields that are read without a lock lie on one cache line
}

// slot is a cell in 24 bytes. A free one is all zeros.
type slot struct {
	lo atomic.Uint64 // of the hash; what the slot keeps of the rest of it is in the pair
	pair
}

// A table is made larger by a tenth when more than 23 of 25 slots are taken. A search for a cell that is
// there looks at 4 slots on average by then, which lie on one or two cache lines.
const (
	loadSlots = 25
	loadCells = 23
)

// moved is the version of a table whose cells are in another one now.
const moved = ^uint64(0)

// newTable returns a table for a number of cells, locked.
func newTable(cells int, withRich bool) *table {
	t := &table{}
	// The allocator rounds up; use what it gives.
	t.slots = slices.Grow(t.slots, max(cells*loadSlots/loadCells+1, 8))
	t.slots = t.slots[:cap(t.slots)]
	if withRich {
		t.rich = make([]atomic.Pointer[rich], len(t.slots))
	}
	t.version.Store(1)
	return t
}

func (s *Store) tableOf(h hash) int { return int(h.hi >> s.shift) }

// lock locks a table, making it if need be.
func (s *Store) lock(i int) *table {
	for n := 0; ; n++ {
		t := s.tables[i].Load()
		if t == nil {
			t = newTable(0, false)
			if s.names {
				t.names = newNames(len(t.slots), 0)
			}
			if s.tables[i].CompareAndSwap(nil, t) {
				return t
			}
			continue
		}
		if t.tryLock() {
			return t
		}
		pause(n)
	}
}

func (t *table) tryLock() bool {
	v := t.version.Load()
	return v%2 == 0 && t.version.CompareAndSwap(v, v+1)
}

func (t *table) unlock() { t.version.Add(1) }

// unlockAt unlocks the table that stands at i; it was locked at i.
func (s *Store) unlockAt(i int) { s.tables[i].Load().unlock() }

// home returns where the search for a hash begins.
func (t *table) home(lo uint64) int { return int(lo >> 32 * uint64(len(t.slots)) >> 32) }

// find returns the slot of a cell, or -1. Without the lock it may miss, and
// find what is gone; version shows it.
func (t *table) find(h hash) int {
	slots := t.slots
	i := t.home(h.lo)
	for range slots {
		sl := &slots[i]
		switch sl.lo.Load() {
		case h.lo:
			if sl.at.Load()&^timeMask == h.tag() {
				return i
			}
		case 0:
			return -1
		}
		if i++; i == len(slots) {
			i = 0
		}
	}
	return -1
}

// insert puts a cell that is not there into a table that has room for it.
func (t *table) insert(h hash, key string, word uint64, at int64, r *rich) {
	i := t.place(h.lo, word, h.tag()|at, r)
	if t.names != nil {
		t.names.put(i, key)
	}
}

// place inserts a cell without its key, and returns the slot.
func (t *table) place(lo, word uint64, tagged int64, r *rich) int {
	i := t.home(lo)
	for t.slots[i].lo.Load() != 0 {
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i].fill(lo, word, tagged)
	if t.rich != nil {
		t.rich[i].Store(r)
	}
	t.used++
	return i
}

// fill writes a slot that is free, or whose lock bit is held.
func (sl *slot) fill(lo, word uint64, tagged int64) {
	sl.lo.Store(lo)
	sl.set(word, tagged)
}

// write writes the pair of a slot whose lock bit is held, and lets go of it. The cell stays the same.
func (sl *slot) write(word uint64, at int64) { sl.set(word, sl.at.Load()&^timeMask|at) }

// remove frees a slot, and moves those behind it up, so that no search stops
// short of them.
func (t *table) remove(hole int) {
	t.slots[hole].lock()
	if t.names != nil {
		t.names.drop(hole)
	}
	n := len(t.slots)
	for i := hole; ; {
		if i++; i == n {
			i = 0
		}
		sl := &t.slots[i]
		lo := sl.lo.Load()
		if lo == 0 {
			break
		}
		if (i-t.home(lo)+n)%n < (i-hole+n)%n {
			continue // it would stand before its home
		}
		word := sl.lock()
		t.slots[hole].fill(lo, word, sl.at.Load())
		if t.rich != nil {
			t.rich[hole].Store(t.rich[i].Load())
		}
		if t.names != nil {
			t.names.move(hole, i)
		}
		hole = i
	}
	t.slots[hole].fill(0, 0, 0)
	if t.rich != nil {
		t.rich[hole].Store(nil)
	}
	t.used--
}

// fits reports whether the table has places for more cells.
func (t *table) fits(more int) bool { return (t.used+more)*loadSlots <= len(t.slots)*loadCells }

// room returns the locked table at i, or the one that takes its place because
// it is too full for one more cell, or cannot hold rich ones.
func (s *Store) room(i int, more int, withRich bool) *table {
	t := s.tables[i].Load()
	withRich = withRich || t.rich != nil
	if !t.fits(more) {
		used := t.used + more
		return s.rebuild(i, used+used/10, withRich)
	}
	if withRich && t.rich == nil {
		return s.rebuild(i, t.used+more, true)
	}
	return t
}

// rebuild moves the cells of the locked table at i into a new one, which it
// returns locked.
func (s *Store) rebuild(i int, cells int, withRich bool) *table {
	t := s.tables[i].Load()
	next := newTable(cells, withRich)
	if t.names != nil {
		live := len(t.names.text) - t.names.gone
		next.names = newNames(len(next.slots), live*(len(next.slots)*loadCells/loadSlots)/max(t.used, 1))
	}
	for j := range t.slots {
		sl := &t.slots[j]
		lo := sl.lo.Load()
		if lo == 0 {
			continue
		}
		var r *rich
		if t.rich != nil {
			r = t.rich[j].Load()
		}
		word := sl.settled() // and nobody changes it while version is odd
		i := next.place(lo, word, sl.at.Load(), r)
		if t.names != nil {
			next.names.copy(i, t.names, j)
		}
	}
	next.logs = t.logs
	next.soonest.Store(t.soonest.Load())
	s.tables[i].Store(next)
	t.version.Store(moved)
	return next
}
