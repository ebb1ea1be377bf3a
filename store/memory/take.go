package memory

import (
	"context"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// result says how an attempt to decide a plain charge went.
type result uint8

const (
	decided result = iota
	changed        // the cell was moved or replaced: find it again
	absent         // there is no such cell
	unusual        // Apply has to decide; nothing was done
)

// TakeOne implements store.OneTaker. It need not validate the name and the parameters of a cell that it finds: the
// charge that made the cell had the same. A refusal writes nothing that others read.
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

// take decides a plain charge of a plain cell without locking its table. It allocates nothing. level and newTime are
// the cell's level and time after the decision. exact says whether it reads the exact clock and not the coarse one.
func (s *Store) take(b *store.Brief, h hash, p *law.Params, cost int64, exact bool) (level, newTime int64, res result) {
	tableSlot := &s.tables[s.tableOf(h)]
	for n := 0; ; n++ {
		t := tableSlot.Load()
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
		pr, id := &t.slots[i].pair, idOf(t.slots[i].word.Load())
		var cellParams *law.Params
		if id == idRich {
			r := t.richAt(i)
			if t.version.Load() != version {
				continue
			}
			pr, id, cellParams = &r.pair, idPlain, r.params
		} else if d := s.defs.get(id); d != nil { // else the slot was freed just now
			cellParams = &d.params
		}
		if cellParams == nil || *cellParams != *p {
			return 0, 0, unusual
		}
		if level, newTime, res = s.charge(b, pr, id, cellParams, cost, exact, t, version); res != changed {
			return level, newTime, res
		}
		if pr != &t.slots[i].pair {
			return 0, 0, unusual // gone, or not plain
		}
	}
}

// charge decides a plain charge by the pair of a plain cell, and writes the pair. The pair belongs to the cell with
// parameters p as long as the pair has this id, and table t this version. If t is nil, the caller has locked the table.
//
// charge reads the clock after the pair, so that the clock is not behind the pair's time unless the clock is coarse, or
// was set back.
func (s *Store) charge(b *store.Brief, pr *pair, id uint64, p *law.Params, cost int64, exact bool, t *table,
	version uint64,
) (level, newTime int64, res result) {
	for n := 0; ; n++ {
		tagged := pr.at.Load()
		at := tagged & timeMask
		word := pr.word.Load()
		if word&lockBit != 0 || pr.at.Load() != tagged {
			pause(n)
			continue
		}
		if idOf(word) != id {
			return 0, 0, changed
		}
		var clock int64
		isNow := exact
		if exact {
			clock = s.clock()
		} else {
			clock, isNow = s.readCoarse(at)
		}
		if at-clock > law.PlainSlack || clock > timeMask {
			return 0, 0, unusual
		}
		level = levelOf(word)
		granted, used, newTime, retryAt, emptyAt := law.TakePlain(p, level, at, cost, clock)
		if !granted {
			if !isNow && retryAt-clock <= coarse.Lag {
				exact = true // by the exact clock the charge may pass already
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
		if !pr.word.CompareAndSwap(word, word|lockBit) {
			pause(n)
			continue
		}
		if t != nil && t.version.Load() != version {
			pr.word.Store(word)
			return 0, 0, changed
		}
		if pr.at.Load() != tagged { // the level is the same, but the time has changed
			pr.word.Store(word)
			continue
		}
		if newTime != at {
			pr.at.Store(tagged&^timeMask | newTime)
		}
		pr.word.Store(wordOf(used, id))
		setBrief(b, true, used, clock, max(clock, newTime), 0, emptyAt)
		return used, newTime, decided
	}
}

// setBrief sets the fields one by one: the processor stalls if it copies a struct that was just written in pieces.
func setBrief(b *store.Brief, granted bool, used, clock, at, retryAt, emptyAt int64) {
	b.Granted = granted
	b.Used = used
	b.Clock = clock
	b.At = at
	b.RetryAt = retryAt
	b.EmptyAt = emptyAt
}

// readCoarse returns a time for a decision about a plain cell whose time is at, and whether it read the exact clock. A
// cell that was charged by the exact clock may be ahead of the coarse clock, by up to coarse.Lag, but not of the exact
// one: then readCoarse returns at.
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

// takeLocked charges a cell that may not exist yet. It locks the table.
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
	pr, id := &t.slots[i].pair, idOf(t.slots[i].waitUnlocked())
	var cellParams *law.Params
	if id == idRich {
		r := t.richAt(i)
		pr, id, cellParams = &r.pair, idPlain, r.params
	} else {
		cellParams = &s.defs.get(id).params
	}
	if *cellParams != *p {
		return 0, 0, unusual
	}
	if level, at, res = s.charge(b, pr, id, cellParams, cost, true, nil, 0); res != decided {
		return 0, 0, unusual
	}
	return level, at, decided
}

// takeFirst makes a cell and charges it, or refuses a charge that can never pass. The caller has locked its table. If
// there is no room, it charges nothing and leaves the charge to Apply.
func (s *Store) takeFirst(b *store.Brief, h hash, op *law.Op) (level, at int64, res result) {
	ti := s.tableOf(h)
	l, p := s.limitOf(op.Cell.Limit), &op.Params
	clock := s.clock()
	if clock > timeMask {
		return 0, 0, unusual
	}
	granted, level, at, retryAt, emptyAt := law.TakePlain(p, 0, 0, op.Cost, clock)
	if !granted { // the charge can never pass: there is no block, and nothing to keep
		setBrief(b, false, level, clock, clock, retryAt, 0)
		return 0, 0, decided
	}
	s.tidy(ti, clock)
	if !s.makeRoomIn(s.tables[ti].Load(), func() bool { return s.reserve(l) }, clock) {
		return 0, 0, unusual
	}
	id := s.defs.id(l, p)
	if id == 0 {
		r := s.newRich(l, p)
		r.set(wordOf(level, idPlain), at)
		s.tableWithRoom(ti, 1, true).insert(h, op.Cell.Key, wordOf(0, idRich), 0, r)
	} else {
		s.tableWithRoom(ti, 1, false).insert(h, op.Cell.Key, wordOf(level, id), at, nil)
	}
	s.noteDeath(ti, emptyAt)
	setBrief(b, true, level, clock, clock, 0, emptyAt)
	return level, at, decided
}

// newRich returns an empty rich cell of a definition.
func (s *Store) newRich(l *limit, p *law.Params) *rich {
	if p.Plain() {
		if id := s.defs.id(l, p); id != 0 {
			return &rich{params: &s.defs.get(id).params, limit: l}
		}
	}
	params := *p
	return &rich{params: &params, limit: l}
}

// richAt returns the object of a slot whose cell is rich. If the caller has not locked the table, the cell may have
// moved away: then it returns noRich.
func (t *table) richAt(i int) *rich {
	if t.rich != nil {
		if r := t.rich[i].Load(); r != nil {
			return r
		}
	}
	return noRich
}

// noRich is the object of no cell: its id is idGone.
var noRich = func() *rich {
	r := &rich{params: &law.Params{}}
	r.word.Store(wordOf(0, idGone))
	return r
}()
