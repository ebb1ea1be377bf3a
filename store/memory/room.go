package memory

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/internal/keycount"
)

// reserve reserves room for one more cell of a limit, and reports whether there was room. The caller gives it back with
// release. A retired limit has no room.
func (s *Store) reserve(l *limit) bool {
	if !addUpTo(&l.cellCount, 1, s.maxPerLimit) {
		return false
	}
	if !addUpTo(&s.cellCount, 1, s.maxTotal) {
		l.cellCount.Add(-1)
		return false
	}
	return true
}

// addUpTo adds to a count that is not negative, unless the sum would exceed a bound. It reports whether it has added.
func addUpTo(count *atomic.Int64, delta, bound int64) bool {
	for {
		n := count.Load()
		if n < 0 || n > bound-delta {
			return false
		}
		if count.CompareAndSwap(n, n+delta) {
			return true
		}
	}
}

// release gives back the room of a cell.
func (s *Store) release(l *limit) {
	l.cellCount.Add(-1)
	s.cellCount.Add(-1)
}

// noteDeath notes that a cell of table i, which is locked, can be forgotten from time deadAt on. A plain charge
// need not call it: it only postpones the death.
func (s *Store) noteDeath(i int, deadAt int64) {
	lowerTo(&s.tables[i].Load().soonestDeath, deadAt)
	lowerTo(&s.soonestDeath, deadAt)
}

// lowerTo sets v to a smaller value.
func lowerTo(v *atomic.Int64, to int64) {
	for {
		old := v.Load()
		if old <= to || v.CompareAndSwap(old, to) {
			return
		}
	}
}

// removeIfDead removes the cell at slot i of a locked table if it is dead, and gives its room back. It returns the time
// from which on the cell is dead.
func (s *Store) removeIfDead(t *table, i int, now int64) (deadAt int64, removed bool) {
	sl := &t.slots[i]
	word := sl.waitUnlocked()
	if id := idOf(word); id != idRich {
		d := s.defs.get(id)
		if deadAt = d.params.PlainEmptyAt(levelOf(word), sl.time()); deadAt <= now {
			t.remove(i)
			s.release(d.limit)
		}
		return deadAt, deadAt <= now
	}
	r := t.richAt(i)
	word = r.lock()
	if deadAt = r.deadAt(word); deadAt > now {
		r.word.Store(word)
		return deadAt, false
	}
	r.word.Store(wordOf(0, idGone))
	t.remove(i)
	s.release(r.limit)
	s.usedBytes.Add(-r.log.bytes() - r.receipts.bytes())
	return deadAt, true
}

// evict removes a dead cell from a locked table, and reports whether there was one. It searches from where it last
// stopped. If it finds none, it sets t.soonestDeath, so that no search is made before.
func (s *Store) evict(t *table, now int64) bool {
	if t.soonestDeath.Load() > now {
		return false
	}
	soonest := int64(law.Never)
	for range t.slots {
		if t.nextEvictSlot >= len(t.slots) {
			t.nextEvictSlot = 0
		}
		if t.slots[t.nextEvictSlot].lo.Load() != 0 {
			deadAt, removed := s.removeIfDead(t, t.nextEvictSlot, now)
			if removed {
				return true
			}
			soonest = min(soonest, deadAt)
		}
		t.nextEvictSlot++
	}
	t.soonestDeath.Store(soonest)
	return false
}

// makeRoomIn removes dead cells of a locked table until reserve succeeds. It reports whether reserve did.
func (s *Store) makeRoomIn(t *table, reserve func() bool, now int64) bool {
	for !reserve() {
		if !s.evict(t, now) {
			return false
		}
	}
	return true
}

// deadFor is for how many microseconds a cell is dead before tidy removes it. A fast limit is empty again between two
// charges of a key: charges that insert the key again take 1.3 times as long.
const deadFor = 100_000

// tidy removes cells of the locked table at i that have been dead for a while, if the table has no room for one more
// cell. So tables grow only with the cells in use, however fast new keys come. It grows the table if less than a tenth
// of it was removed, so that the cost of the scan is spread over many insertions.
func (s *Store) tidy(i int, now int64) {
	t := s.tables[i].Load()
	used, longDead := t.used, now-deadFor
	if t.fits(1) || t.soonestDeath.Load() > longDead {
		return
	}
	if s.sweep(t, longDead, math.MaxInt); t.used > used-used/10 {
		s.rebuild(i, used+used/10, t.rich != nil)
	}
}

// makeRoom removes dead cells of all tables until reserve succeeds. The caller has locked no table. It fails only
// if no dead cell is left. Further calls then cost next to nothing until a cell dies.
func (s *Store) makeRoom(reserve func() bool, now int64) bool {
	s.evictMu.Lock()
	defer s.evictMu.Unlock()
	if reserve() {
		return true
	}
	if s.soonestDeath.Load() > now {
		return false
	}
	s.soonestDeath.Store(law.Never) // each writer of a cell lowers it from here on
	soonest := int64(law.Never)
	for range s.tables {
		if t := s.tables[s.evictAt].Load(); t != nil {
			if t.soonestDeath.Load() <= now {
				t = s.lock(s.evictAt)
				hasRoom := s.makeRoomIn(t, reserve, now)
				s.unlockAt(s.evictAt)
				if hasRoom {
					s.soonestDeath.Store(0)
					return true
				}
			}
			soonest = min(soonest, t.soonestDeath.Load())
		}
		s.evictAt = (s.evictAt + 1) % len(s.tables)
	}
	lowerTo(&s.soonestDeath, soonest)
	return reserve()
}

// fullError returns the error of a request for which there is no room: for a cell of limit l, or for bytes if l is nil.
func (s *Store) fullError(l *limit) error {
	if l == nil {
		return fmt.Errorf("%w: the attempts and requests that this process remembers take %d bytes, of at most %d, "+
			"and each still counts", store.ErrFull, s.usedBytes.Load(), s.maxBytes)
	}
	if n := l.cellCount.Load(); n >= s.maxPerLimit {
		return fmt.Errorf("%w: limit %q has %d keys, as many as this process keeps of one limit, and each still counts",
			store.ErrFull, l.name, n)
	}
	return fmt.Errorf("%w: this process keeps %d keys of all limits, as many as it may, and each still counts",
		store.ErrFull, s.cellCount.Load())
}

// KeyCounts implements store.Inspector. The first element counts the keys of all limits together.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	now := s.clock()
	s.limitsMu.Lock()
	var list []store.KeyCount
	for _, l := range s.byName {
		if n := l.cellCount.Load(); n > 0 {
			list = append(list, store.KeyCount{Limit: l.name, Keys: n, Max: boundOrZero(s.maxPerLimit), At: now})
		}
	}
	s.limitsMu.Unlock()
	total := store.KeyCount{Keys: s.cellCount.Load(), Max: boundOrZero(s.maxTotal), At: now}
	return append([]store.KeyCount{total}, keycount.Largest(list)...), nil
}

// boundOrZero returns a bound for store.KeyCount, in which 0 is no bound.
func boundOrZero(bound int64) int64 {
	if bound == unbounded {
		return 0
	}
	return bound
}

// Sweep implements store.Store. It goes on where the last call stopped, and locks one table at a time.
func (s *Store) Sweep(ctx context.Context, maxRemoved int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	now := s.clock()
	for range s.tables {
		if removed >= maxRemoved || ctx.Err() != nil {
			break
		}
		i := int(s.sweepAt.Load()) % len(s.tables)
		if t := s.tables[i].Load(); t != nil {
			t = s.lock(i)
			removed += s.sweep(t, now, maxRemoved-removed)
			if removed < maxRemoved && len(t.slots) > 4*max(t.used, 8) { // three quarters are free
				s.rebuild(i, t.used, t.rich != nil)
			}
			s.unlockAt(i)
		}
		if removed < maxRemoved {
			s.sweepAt.Store(int64(i) + 1)
		}
	}
	return removed, ctx.Err()
}

// sweep removes up to maxRemoved dead cells, log entries and receipts from a locked table.
func (s *Store) sweep(t *table, now int64, maxRemoved int) (removed int) {
	if t.soonestDeath.Load() > now && !t.mayHaveLogs {
		return 0
	}
	soonest, hasLogs := int64(law.Never), false
	for i := 0; i < len(t.slots); {
		if t.slots[i].lo.Load() == 0 {
			i++
			continue
		}
		if removed >= maxRemoved {
			return removed // soonestDeath stays as it was
		}
		if t.mayHaveLogs {
			n, cellHasLog := s.compact(t, i, now, maxRemoved-removed)
			removed, hasLogs = removed+n, hasLogs || cellHasLog
			if removed >= maxRemoved {
				return removed
			}
		}
		deadAt, cellRemoved := s.removeIfDead(t, i, now)
		if cellRemoved {
			removed++
			continue // another cell may stand there now
		}
		soonest = min(soonest, deadAt)
		i++
	}
	t.soonestDeath.Store(soonest)
	t.mayHaveLogs = hasLogs
	return removed
}

// compact removes log entries and receipts of the cell at slot i of a locked table that no longer count.
// hasLog reports whether the cell has a log or receipts.
func (s *Store) compact(t *table, i int, now int64, maxRemoved int) (removed int, hasLog bool) {
	if t.rich == nil {
		return 0, false
	}
	r := t.rich[i].Load()
	if r == nil {
		return 0, false
	}
	word := r.lock()
	before := r.log.bytes() + r.receipts.bytes()
	if r.log != nil {
		hasLog = true
		removed = r.log.compact(r.state.At, r.state.EmptyAt, now, maxRemoved)
	}
	if r.receipts != nil {
		hasLog = true
		removed += r.receipts.compact(now, maxRemoved-removed)
	}
	s.usedBytes.Add(r.log.bytes() + r.receipts.bytes() - before)
	r.word.Store(word)
	return removed, hasLog
}
