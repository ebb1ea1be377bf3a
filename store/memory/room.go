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

// reserve makes room for one more cell of a limit, if there is some. It is given back
// by release. A limit that is retired has none.
func (s *Store) reserve(l *limit) bool {
	if !add(&l.count, 1, s.each) {
		return false
	}
	if !add(&s.count, 1, s.most) {
		l.count.Add(-1)
		return false
	}
	return true
}

// add counts up, if that makes no more than most.
func add(count *atomic.Int64, more, most int64) bool {
	for {
		n := count.Load()
		if n < 0 || n > most-more {
			return false
		}
		if count.CompareAndSwap(n, n+more) {
			return true
		}
	}
}

// release gives back the room of a cell.
func (s *Store) release(l *limit) {
	l.count.Add(-1)
	s.count.Add(-1)
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

// bury removes the cell at slot i of a locked table if it is dead, and gives its room
// back. It returns when the cell will be dead.
func (s *Store) bury(t *table, i int, now int64) (dead int64, gone bool) {
	sl := &t.slots[i]
	word := sl.settled()
	if id := idOf(word); id != idRich {
		d := s.params.get(id)
		if dead = d.params.PlainEmptyAt(levelOf(word), sl.time()); dead <= now {
			t.remove(i)
			s.release(d.limit)
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
	s.release(r.limit)
	s.bytes.Add(-r.log.bytes() - r.known.bytes())
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

// roomIn removes dead cells of a locked table until reserve succeeds.
func (s *Store) roomIn(t *table, reserve func() bool, now int64) bool {
	for !reserve() {
		if !s.evict(t, now) {
			return false
		}
	}
	return true
}

// tidy removes the dead cells of the locked table at i if it has no place for one more cell. So tables grow with
// their live cells, however fast new keys come. It grows the table if less than a tenth of it was dead, so that
// the cost of the scan is spread over many insertions.
func (s *Store) tidy(i int, now int64) {
	t := s.tables[i].Load()
	used := t.used
	if t.fits(1) || t.soonest.Load() > now {
		return
	}
	if s.sweep(t, now, math.MaxInt); t.used > used-used/10 {
		s.rebuild(i, used+used/10, t.rich != nil)
	}
}

// makeRoom removes dead cells, wherever they may be, until reserve succeeds. The caller holds no table. It
// fails only if no cell is dead any more. Then it costs next to nothing until some cell dies.
func (s *Store) makeRoom(reserve func() bool, now int64) bool {
	s.evictor.Lock()
	defer s.evictor.Unlock()
	if reserve() {
		return true
	}
	if s.soonest.Load() > now {
		return false
	}
	s.soonest.Store(law.Never) // each writer of a cell lowers it from here on
	soonest := int64(law.Never)
	for range s.tables {
		if t := s.tables[s.evictAt].Load(); t != nil {
			if t.soonest.Load() <= now {
				t = s.lock(s.evictAt)
				found := s.roomIn(t, reserve, now)
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
	return reserve()
}

// full returns the error of a request for which there is no room: for a cell of a limit, or for bytes.
func (s *Store) full(l *limit) error {
	if l == nil {
		return fmt.Errorf("%w: the attempts and requests that this process remembers take %d bytes, of at most %d, "+
			"and each still counts", store.ErrFull, s.bytes.Load(), s.within)
	}
	if n := l.count.Load(); n >= s.each {
		return fmt.Errorf("%w: limit %q has %d keys, as many as this process keeps of one limit, and each still counts",
			store.ErrFull, l.name, n)
	}
	return fmt.Errorf("%w: this process keeps %d keys of all limits, as many as it may, and each still counts",
		store.ErrFull, s.count.Load())
}

// KeyCounts implements store.Inspector. The first count is that of all limits together.
func (s *Store) KeyCounts(ctx context.Context) ([]store.KeyCount, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	now := s.clock()
	s.known.Lock()
	var list []store.KeyCount
	for _, l := range s.byName {
		if n := l.count.Load(); n > 0 {
			list = append(list, store.KeyCount{Limit: l.name, Keys: n, Max: bounded(s.each), At: now})
		}
	}
	s.known.Unlock()
	all := store.KeyCount{Keys: s.count.Load(), Max: bounded(s.most), At: now}
	return append([]store.KeyCount{all}, keycount.Largest(list)...), nil
}

// bounded returns a bound as store.KeyCount has it.
func bounded(most int64) int64 {
	if most == unbounded {
		return 0
	}
	return most
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
			n, has := s.compact(t, i, now, most-removed)
			removed, logs = removed+n, logs || has
			if removed >= most {
				return removed
			}
		}
		dead, gone := s.bury(t, i, now)
		if gone {
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

// compact forgets entries and admissions of the cell at slot i of a locked table, if it is rich and
// has any.
func (s *Store) compact(t *table, i int, now int64, most int) (removed int, has bool) {
	if t.rich == nil {
		return 0, false
	}
	r := t.rich[i].Load()
	if r == nil {
		return 0, false
	}
	word := r.lock()
	before := r.log.bytes() + r.known.bytes()
	if r.log != nil {
		has = true
		removed = r.log.compact(r.state.At, r.state.EmptyAt, now, most)
	}
	if r.known != nil {
		has = true
		removed += r.known.compact(now, most-removed)
	}
	s.bytes.Add(r.log.bytes() + r.known.bytes() - before)
	r.word.Store(word)
	return removed, has
}
