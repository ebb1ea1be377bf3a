package memory

import (
	"context"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// result says how an attempt to decide about a plain charge went.
type result uint8

const (
	decided result = iota
	changed        // the cell is not what it was: look for it again
	absent         // there is no such cell
	unusual        // not for a plain charge: nothing was done
)

// TakeOne implements store.OneTaker. A cell that is found has been charged
// before, so its name and its parameters are known to be valid. A refusal
// writes nothing that others read.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, ok bool) {
	if cost < 1 || cost > law.Max || !p.Plain() || s.ready(ctx) != nil {
		return b, false
	}
	h := s.hash(&cell)
	_, _, res := s.take(&b, h, p, cost, s.coarse == nil)
	if res == absent {
		_, _, res = s.takeLocked(&b, h, &cell, p, cost)
	}
	return b, res == decided
}

// take decides about a plain charge of a plain cell without locking its table.
// It allocates nothing. level and then are the cell's level and time after the
// decision.
func (s *Store) take(b *store.Brief, h hash, p *law.Params, cost int64, exact bool) (level, then int64, res result) {
	at := &s.tables[s.tableOf(h)]
	for n := 0; ; n++ {
		t := at.Load()
		if t == nil {
			return 0, 0, absent
		}
		version := t.version.Load()
		if version%2 != 0 {
			pause(n)
			continue
		}
		i := t.find(h)
		if i < 0 {
			if t.version.Load() == version {
				return 0, 0, absent
			}
			continue
		}
		f, id := &t.slots[i].pair, idOf(t.slots[i].word.Load())
		var q *law.Params
		if id == idRich {
			r := t.richAt(i)
			if t.version.Load() != version {
				continue
			}
			f, id, q = &r.pair, idPlain, r.params
		} else if d := s.params.get(id); d != nil { // else the slot was freed just now
			q = &d.params
		}
		if q == nil || *q != *p {
			return 0, 0, unusual
		}
		if level, then, res = s.charge(b, f, id, q, cost, exact, t, version); res != changed {
			return level, then, res
		}
		if f != &t.slots[i].pair {
			return 0, 0, unusual // gone, or not plain
		}
	}
}

// charge decides about a plain charge by the pair of a plain cell, and writes
// it. The pair is that of the cell with parameters p while it has this id and
// the table this version; a nil table is always the same.
//
// The clock is read after the pair, so that it is not behind it, unless it is
// coarse, or was set back.
func (s *Store) charge(b *store.Brief, f *pair, id uint64, p *law.Params, cost int64, exact bool, t *table,
	version uint64,
) (level, then int64, res result) {
	for n := 0; ; n++ {
		tagged := f.at.Load()
		at := tagged & timeMask
		word := f.word.Load()
		if word&lockBit != 0 || f.at.Load() != tagged {
			pause(n)
			continue
		}
		if idOf(word) != id {
			return 0, 0, changed
		}
		var clock int64
		now := exact
		if exact {
			clock = s.clock()
		} else {
			clock, now = s.readCoarse(at)
		}
		if at-clock > law.PlainSlack || clock > timeMask {
			return 0, 0, unusual
		}
		level = levelOf(word)
		granted, used, then, retryAt, emptyAt := law.TakePlain(p, level, at, cost, clock)
		if !granted {
			if !now && retryAt-clock <= coarse.Lag {
				exact = true // it may pass already
				continue
			}
			if t != nil && t.version.Load() != version {
				return 0, 0, changed
			}
			if p.Block > 0 {
				return 0, 0, unusual // it may block the cell
			}
			setBrief(b, false, used, clock, max(clock, at), retryAt, emptyAt)
			return level, at, decided
		}
		if !f.word.CompareAndSwap(word, word|lockBit) {
			pause(n)
			continue
		}
		if t != nil && t.version.Load() != version {
			f.word.Store(word)
			return 0, 0, changed
		}
		if f.at.Load() != tagged { // the same level at another time
			f.word.Store(word)
			continue
		}
		if then != at {
			f.at.Store(tagged&^timeMask | then)
		}
		f.word.Store(wordOf(used, id))
		setBrief(b, true, used, clock, max(clock, then), 0, emptyAt)
		return used, then, decided
	}
}

// setBrief sets the fields one by one: a struct that is copied just after it
// was written in other pieces makes the processor wait.
func setBrief(b *store.Brief, granted bool, used, clock, at, retryAt, emptyAt int64) {
	b.Granted = granted
	b.Used = used
	b.Clock = clock
	b.At = at
	b.RetryAt = retryAt
	b.EmptyAt = emptyAt
}

// readCoarse returns a time for a decision about a plain cell as of at, and
// whether it was read just now. The time of a cell that was charged by the
// exact clock may be ahead of the coarse one, but not of the exact one: it
// will do.
func (s *Store) readCoarse(at int64) (clock int64, exact bool) {
	clock, exact = s.coarse.Read()
	if clock >= at || exact {
		return clock, exact
	}
	if at-clock > coarse.Lag {
		return s.clock(), true
	}
	return at, false
}

// takeLocked takes from a cell that may not be there yet. The table is locked.
func (s *Store) takeLocked(b *store.Brief, h hash, cell *law.Cell, p *law.Params, cost int64) (
	level, at int64, res result,
) {
	if !p.Plain() {
		return 0, 0, unusual
	}
	op := law.Op{Verb: law.Take, Cell: *cell, Params: *p, Cost: cost, Count: 1}
	if op.Valid() != nil {
		return 0, 0, unusual
	}
	ti := s.tableOf(h)
	t := s.lock(ti)
	defer s.unlockAt(ti)
	i := t.find(h)
	if i < 0 {
		return s.takeFirst(b, h, &op)
	}
	f, id := &t.slots[i].pair, idOf(t.slots[i].settled())
	var q *law.Params
	if id == idRich {
		r := t.richAt(i)
		f, id, q = &r.pair, idPlain, r.params
	} else {
		q = &s.params.get(id).params
	}
	if *q != *p {
		return 0, 0, unusual
	}
	if level, at, res = s.charge(b, f, id, q, cost, true, nil, 0); res != decided {
		return 0, 0, unusual
	}
	return level, at, decided
}

// takeFirst charges a cell that is not there, under the lock. Where there is no room, it
// charges nothing and leaves the charge to Apply.
func (s *Store) takeFirst(b *store.Brief, h hash, op *law.Op) (level, at int64, res result) {
	ti := s.tableOf(h)
	l, p := s.limitOf(op.Cell.Limit), &op.Params
	clock := s.clock()
	if clock > timeMask {
		return 0, 0, unusual
	}
	granted, level, at, retryAt, emptyAt := law.TakePlain(p, 0, 0, op.Cost, clock)
	if !granted { // it can never pass: no block, nothing to keep
		setBrief(b, false, level, clock, clock, retryAt, 0)
		return 0, 0, decided
	}
	s.tidy(ti, clock)
	if !s.roomIn(s.tables[ti].Load(), func() bool { return s.reserve(l) }, clock) {
		return 0, 0, unusual
	}
	id := s.params.id(l, p)
	if id == 0 {
		r := s.newRich(l, p)
		r.set(wordOf(level, idPlain), at)
		s.room(ti, 1, true).insert(h, op.Cell.Key, wordOf(0, idRich), 0, r)
	} else {
		s.room(ti, 1, false).insert(h, op.Cell.Key, wordOf(level, id), at, nil)
	}
	s.diesAt(ti, emptyAt)
	setBrief(b, true, level, clock, clock, 0, emptyAt)
	return level, at, decided
}

// newRich returns a rich cell for a limit.
func (s *Store) newRich(l *limit, p *law.Params) *rich {
	if p.Plain() {
		if id := s.params.id(l, p); id != 0 {
			return &rich{params: &s.params.get(id).params, limit: l}
		}
	}
	own := *p
	return &rich{params: &own, limit: l}
}

// richAt returns the object of a slot, if it is rich. Without the lock, while
// slots move, it may be none: then it is one that says nothing.
func (t *table) richAt(i int) *rich {
	if t.rich != nil {
		if r := t.rich[i].Load(); r != nil {
			return r
		}
	}
	return nobody
}

// nobody is a cell that was never there.
var nobody = func() *rich {
	r := &rich{params: &law.Params{}}
	r.word.Store(wordOf(0, idGone))
	return r
}()
