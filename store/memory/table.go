package memory

import (
	"slices"
	"sync/atomic"
)

// table is an open-addressed hash table of some hundred slots. The slots have no pointers, so the garbage collector
// does not scan them. Readers take no lock: a writer that moves cells keeps version odd meanwhile, and a reader checks
// that version has not changed. A plain charge leaves version alone, and locks the pair of its cell.
type table struct {
	version atomic.Uint64 // odd while the table is locked
	slots   []slot
	rich    []atomic.Pointer[rich] // the objects of the rich cells, by slot; nil: there is no room for any

	// Only a goroutine that has locked the table uses the next four fields, and writes soonestDeath.
	names         *names       // the keys of the slots; nil: they are not kept
	used          int          // how many slots hold a cell
	nextEvictSlot int          // the slot at which the search for a dead cell goes on
	mayHaveLogs   bool         // a rich cell may have a log or receipts
	soonestDeath  atomic.Int64 // no cell dies before this time
	_             [32]byte     // to 128 bytes: what a plain charge reads of a table lies on one cache line
}

// slot is a cell in 24 bytes. A free slot is all zeros.
type slot struct {
	lo atomic.Uint64 // hash.lo; the pair has the tag of the hash
	pair
}

// A table grows by a tenth when more than 23 of 25 slots are taken. By then a search for a cell that exists visits 5 to
// 6 slots on average, which lie on two or three cache lines.
const (
	loadSlots = 25
	loadCells = 23
)

// movedVersion is the version of a table whose cells were moved into another one: odd, so that nobody locks it.
const movedVersion = ^uint64(0)

// newTable returns a locked table with room for a number of cells.
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

// tableOf returns the index of a cell's table.
func (s *Store) tableOf(h hash) int { return int(h.hi >> s.shift) }

// lock locks the table at i, and makes it if there is none.
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

// unlockAt unlocks the table at i, which may have been rebuilt since it was locked.
func (s *Store) unlockAt(i int) { s.tables[i].Load().unlock() }

// home returns the slot at which the search for a hash begins.
func (t *table) home(lo uint64) int { return int(lo >> 32 * uint64(len(t.slots)) >> 32) }

// find returns the slot of a cell, or -1. Without the lock the result may be wrong: the caller checks that version has
// not changed.
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

// insert puts a new cell into a table that has room for it.
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

// fill writes a slot that is free, or whose lock bit the caller holds.
func (sl *slot) fill(lo, word uint64, tagged int64) {
	sl.lo.Store(lo)
	sl.set(word, tagged)
}

// update writes the pair of a slot whose lock bit the caller holds, and releases it. The cell stays the same.
func (sl *slot) update(word uint64, at int64) { sl.set(word, sl.at.Load()&^timeMask|at) }

// remove frees a slot. It moves up the cells behind it, so that a search still finds them.
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

// fits reports whether the table has room for a number of new cells.
func (t *table) fits(newCells int) bool { return (t.used+newCells)*loadSlots <= len(t.slots)*loadCells }

// tableWithRoom returns the locked table at i, which it has rebuilt if that was too full for the new cells, or could
// not hold rich cells although withRich is set.
func (s *Store) tableWithRoom(i int, newCells int, withRich bool) *table {
	t := s.tables[i].Load()
	withRich = withRich || t.rich != nil
	if !t.fits(newCells) {
		used := t.used + newCells
		return s.rebuild(i, used+used/10, withRich)
	}
	if withRich && t.rich == nil {
		return s.rebuild(i, t.used+newCells, true)
	}
	return t
}

// rebuild moves the cells of the locked table at i into a new table, which it returns locked.
func (s *Store) rebuild(i int, cells int, withRich bool) *table {
	t := s.tables[i].Load()
	next := newTable(cells, withRich)
	if t.names != nil {
		live := len(t.names.text) - t.names.deadBytes
		// Room for the keys of all cells that fit, if these are as long as the present ones.
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
		word := sl.waitUnlocked() // nobody changes it while version is odd
		k := next.place(lo, word, sl.at.Load(), r)
		if t.names != nil {
			next.names.copy(k, t.names, j)
		}
	}
	next.mayHaveLogs = t.mayHaveLogs
	next.soonestDeath.Store(t.soonestDeath.Load())
	s.tables[i].Store(next)
	t.version.Store(movedVersion)
	return next
}
