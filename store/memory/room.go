package memory

import (
	"context"
	"sync/atomic"

	"github.com/headgate/headgate/law"
)

// reserve makes room for one more cell, if there is some. It is given back by
// counting down.
func (s *Store) reserve() bool {
	for {
		n := s.count.Load()
		if n >= s.most {
			return false
		}
		if s.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// diesAt notes that a cell of table i, which is locked, can be forgotten from
// dead on. Plain charges need not note anything: they only put that off.
func (s *Store) diesAt(i int, dead int64) {
	lower(&s.tables[i].Load().soonest, dead)
	lower(&s.soonest, dead)
}

func lower(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if old <= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// bury removes the cell at slot i of a locked table if it is dead, and returns
// when it will be. The room it took is the caller's.
func (s *Store) bury(t *table, i int, now int64) (dead int64, gone bool) {
	sl := &t.slots[i]
	word := sl.settled()
	if id := idOf(word); id != idRich {
		if dead = s.params.of(id).PlainEmptyAt(levelOf(word), sl.at.Load()); dead <= now {
			t.remove(i)
		}
		return dead, dead <= now
	}
	r := t.richAt(i)
	word = r.lock()
	if dead = r.deadAt(word); dead > now {
		r.word.Store(word)
		return dead, false
	}
	r.word.Store(wordOf(0, idGone))
	t.remove(i)
	return dead, true
}

// evict removes a dead cell from a locked table, if there is one. It goes on
// where it stopped, and remembers when it is worth while to look again.
func (s *Store) evict(t *table, now int64) bool {
	if t.soonest.Load() > now {
		return false
	}
	soonest := int64(law.Never)
	for range t.slots {
		if t.hand >= len(t.slots) {
			t.hand = 0
		}
		if t.slots[t.hand].lo.Load() != 0 {
			dead, gone := s.bury(t, t.hand, now)
			if gone {
				return true
			}
			soonest = min(soonest, dead)
		}
		t.hand++
	}
	t.soonest.Store(soonest)
	return false
}

// makeRoom reserves room for a cell, in place of a dead one wherever that may
// be. The caller holds no table. It fails only if no cell is dead, and then
// costs nothing until one may be.
func (s *Store) makeRoom(now int64) bool {
	s.evictor.Lock()
	defer s.evictor.Unlock()
	if s.reserve() {
		return true
	}
	if s.soonest.Load() > now {
		return false
	}
	s.soonest.Store(law.Never) // whoever writes a cell from here on lowers it
	soonest := int64(law.Never)
	for range s.tables {
		if t := s.tables[s.evictAt].Load(); t != nil {
			if t.soonest.Load() <= now {
				t = s.lock(s.evictAt)
				found := s.evict(t, now)
				s.unlockAt(s.evictAt)
				if found {
					s.soonest.Store(0)
					return true
				}
			}
			soonest = min(soonest, t.soonest.Load())
		}
		s.evictAt = (s.evictAt + 1) % len(s.tables)
	}
	lower(&s.soonest, soonest)
	return s.reserve()
}

// Sweep implements store.Store: it goes on where it stopped, and holds one
// table at a time, of some hundred cells.
func (s *Store) Sweep(ctx context.Context, most int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	now := s.clock()
	for range s.tables {
		if removed >= most || ctx.Err() != nil {
			break
		}
		i := int(s.swept.Load()) % len(s.tables)
		if t := s.tables[i].Load(); t != nil {
			t = s.lock(i)
			removed += s.sweep(t, now, most-removed)
			if removed < most && len(t.slots) > 4*max(t.used, 8) {
				s.rebuild(i, t.used, t.rich != nil)
			}
			s.unlockAt(i)
		}
		if removed < most {
			s.swept.Store(int64(i) + 1)
		}
	}
	return removed, ctx.Err()
}

// sweep removes up to most dead cells and log entries from a locked table.
func (s *Store) sweep(t *table, now int64, most int) (removed int) {
	if t.soonest.Load() > now && !t.logs {
		return 0
	}
	soonest, logs := int64(law.Never), false
	for i := 0; i < len(t.slots); {
		if t.slots[i].lo.Load() == 0 {
			i++
			continue
		}
		if removed >= most {
			return removed // soonest stands
		}
		if t.logs {
			n, has := t.compact(i, now, most-removed)
			removed, logs = removed+n, logs || has
			if removed >= most {
				return removed
			}
		}
		dead, gone := s.bury(t, i, now)
		if gone {
			s.count.Add(-1)
			removed++
			continue // another cell may stand there now
		}
		soonest = min(soonest, dead)
		i++
	}
	t.soonest.Store(soonest)
	t.logs = logs
	return removed
}

// compact forgets entries and admissions of the cell at slot i, if it is rich and
// has any.
func (t *table) compact(i int, now int64, most int) (removed int, has bool) {
	if t.rich == nil {
		return 0, false
	}
	r := t.rich[i].Load()
	if r == nil {
		return 0, false
	}
	word := r.lock()
	if r.log != nil {
		has = true
		removed = r.log.compact(r.state.At, r.state.EmptyAt, now, most)
	}
	if r.known != nil {
		has = true
		removed += r.known.compact(now, most-removed)
	}
	r.word.Store(word)
	return removed, has
}
