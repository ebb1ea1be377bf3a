package memory

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply implements store.Store. Each group is atomic; the groups of a batch
// are applied in order, others may come between them.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if j > i+1 || !plain(&ops[i]) || !s.applyPlain(&ops[i], &outs[i]) {
			s.applyGroup(ops[i:j], outs[i:j])
		}
	}
	return nil
}

// plain reports whether an op is nothing but a charge that TakePlain knows.
func plain(op *law.Op) bool {
	return op.Plain() && op.Params.Plain() && op.Now == 0 && op.Cost >= 1 && op.Cost <= law.Max
}

// applyPlain applies a plain charge, if its cell is plain too, and there is
// room.
func (s *Store) applyPlain(op *law.Op, out *law.Outcome) bool {
	var b store.Brief
	h := s.hash(&op.Cell)
	level, at, res := s.take(&b, h, &op.Params, op.Cost, true)
	if res == absent {
		level, at, res = s.takeLocked(&b, h, &op.Cell, &op.Params, op.Cost)
	}
	if res != decided {
		return false
	}
	*out = law.Outcome{Used: b.Used, Clock: b.Clock, RetryAt: b.RetryAt}
	if b.Granted {
		out.Granted = 1
	}
	if level != 0 || at != 0 { // else it is fresh still
		out.State = op.Params.PlainState(level, at)
	}
	return true
}

// applyGroup applies a group by package law. The tables of a group are locked
// in order, so that groups that share some wait for each other and never in a
// circle.
func (s *Store) applyGroup(ops []law.Op, outs []law.Outcome) {
	if err := law.ValidGroup(ops); err != nil {
		law.FailAll(outs, err)
		return
	}
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	sc.plan(s, ops)
	for {
		l, bytes := s.applyLocked(sc, ops, outs)
		if l == nil && bytes == 0 {
			break
		}
		reserve := func() bool { return s.reserveBytes(sc, bytes) }
		if l != nil {
			reserve = func() bool { return s.reserve(l) }
		}
		if !s.makeRoom(reserve, s.clock()) {
			if op := &ops[0]; len(ops) == 1 && op.Verb == law.Block && op.TTL == 0 { // there is no block to lift
				outs[0] = law.Outcome{Granted: op.Count, Clock: s.clock()}
			} else {
				law.FailAll(outs, s.full(l))
			}
			break
		}
		if l != nil {
			sc.spare = append(sc.spare, l)
		}
	}
	for _, l := range sc.spare {
		s.release(l)
	}
	s.bytes.Add(-sc.bytes) // what was added is counted where it was
	sc.bytes = 0
	clear(sc.work)
	clear(sc.spare)
	sc.spare = sc.spare[:0]
}

// applyLocked applies a group with its tables locked. If there is no room for one of its new cells it does nothing,
// and returns the limit of that cell; if there is none for what it has to remember, how many bytes that may be.
func (s *Store) applyLocked(sc *scratch, ops []law.Op, outs []law.Outcome) (lacking *limit, bytes int64) {
	for _, i := range sc.tables {
		s.lock(i)
		defer s.unlockAt(i)
	}
	now := s.clock()
	for _, i := range sc.tables {
		s.tidy(i, now)
	}
	for again := true; again; {
		s.find(sc, ops)
		if lacking, again = s.reserveAll(sc, now); lacking != nil {
			return lacking, 0
		}
	}
	for i := range sc.work {
		if w := &sc.work[i]; w.first == i {
			s.load(w, &ops[i])
		}
	}
	if bytes = sc.mostBytes(ops); !s.reserveBytes(sc, bytes) {
		for i := range sc.work {
			w := &sc.work[i]
			if w.rich != nil {
				w.rich.word.Store(w.word)
			}
			if w.reserved {
				sc.spare = append(sc.spare, w.limit)
			}
			w.rec, w.log, w.known, w.bytes, w.rich = law.Record{}, nil, nil, 0, nil // it may be another cell next time
		}
		return nil, bytes
	}
	law.Apply(ops, outs, now, sc.records)
	for i, r := range sc.records {
		for k := range r.Add {
			if r.Add[k].Number == 0 {
				r.Add[k].Number = s.number.Add(1)
			}
		}
		r.Number(&outs[i])
	}
	for i := range sc.work {
		if w := &sc.work[i]; w.first == i {
			if added := s.settle(w, &ops[i]); w.reserved && !added {
				s.release(w.limit)
			}
		}
	}
	return nil, 0
}

// load fills the record of a cell.
func (s *Store) load(w *work, op *law.Op) {
	t := s.tables[w.table].Load()
	if w.there {
		i := t.find(w.hash)
		sl := &t.slots[i]
		word := sl.settled()
		if id := idOf(word); id != idRich {
			d := s.params.get(id)
			w.limit, w.rec.State = d.limit, d.params.PlainState(levelOf(word), sl.time())
		} else {
			w.rich = t.richAt(i)
			w.word, w.limit = w.rich.lock(), w.rich.limit
			w.rec.State, w.rec.Reason = w.rich.load(w.word), w.rich.reason
			w.log, w.known = w.rich.log, w.rich.known
			w.bytes = w.log.bytes() + w.known.bytes()
		}
	}
	if w.log == nil && op.Params.Kind == law.Log {
		w.log = &entries{}
	}
	if w.log != nil {
		w.rec.Log = w.log
	}
	w.rec.Receipts = w.known
}

// settle does what the law left to the store for a cell, and reports whether it made
// the cell.
func (s *Store) settle(w *work, op *law.Op) (added bool) {
	r := &w.rec
	if !r.Dirty && !r.Gone && !r.Clear && !r.Forget && len(r.Renew)+len(r.Lower)+len(r.Add)+len(r.Admit) == 0 {
		if w.rich != nil {
			w.rich.word.Store(w.word)
		}
		return false
	}
	w.settleLog()
	s.bytes.Add(w.log.bytes() + w.known.bytes() - w.bytes)
	kept := w.log != nil && len(w.log.list) > 0 || w.known.len() > 0
	if r.State.Kind == 0 && !kept {
		s.forget(w)
		return false
	}
	st, p := &r.State, &op.Params
	simple := p.Plain() && !kept && r.Reason == "" && *st == p.PlainState(st.Level, st.At)
	if simple {
		if id := s.params.id(w.limit, p); id != 0 {
			return s.keepPlain(w, op, id)
		}
	}
	return s.keepRich(w, op, simple)
}

// mostBytes returns how much a group may add to what is remembered. What corrects or ends a charge is never refused
// for it: a settlement adds no more than one attempt to each of a request. Neither is a request that is repeated.
func (sc *scratch) mostBytes(ops []law.Op) (n int64) {
	for i := range ops {
		op := &ops[i]
		if op.Verb == law.Block || op.Verb != law.Extend && !creates(op) {
			continue
		}
		if _, again := sc.work[sc.work[i].first].known.Receipt(op.ID); again && op.Verb == law.Take {
			continue
		}
		id := int64(len(op.ID))
		if op.Params.Kind == law.Log {
			n += max(op.Count, 1) * (entryBytes + id)
		}
		if id > 0 {
			n += receiptBytes + id
		}
	}
	return n
}

// settleLog does what the law left to the store for the log and the register of a
// cell.
func (w *work) settleLog() {
	r := &w.rec
	if len(r.Add) > 0 && w.log == nil {
		w.log = &entries{}
	}
	if r.Clear && w.log != nil {
		w.log.clear()
	}
	for _, n := range r.Renew {
		w.log.renew(n)
	}
	for _, l := range r.Lower {
		w.log.lower(l)
	}
	for _, e := range r.Add {
		w.log.add(e)
		w.log.prune(r.State.At, e.At)
	}
	if r.Forget {
		w.known = nil
	}
	if len(r.Admit) > 0 && w.known == nil {
		w.known = &register{}
	}
	for i := range r.Admit {
		r.Number(&r.Admit[i].Outcome)
		w.known.admit(r.Admit[i], r.Admit[i].Outcome.Clock)
	}
}

// forget removes a cell. The room it took is the store's again.
func (s *Store) forget(w *work) {
	if w.rich != nil {
		w.rich.word.Store(wordOf(0, idGone))
	}
	if w.there {
		t := s.tables[w.table].Load()
		t.remove(t.find(w.hash))
		s.release(w.limit)
	}
}

// keepPlain writes a cell as two numbers.
func (s *Store) keepPlain(w *work, op *law.Op, id uint64) (added bool) {
	st := &w.rec.State
	word := wordOf(st.Level, id)
	if w.there {
		t := s.tables[w.table].Load()
		i := t.find(w.hash)
		t.slots[i].lock()
		t.slots[i].write(word, st.At)
		if w.rich != nil {
			t.rich[i].Store(nil)
			w.rich.word.Store(wordOf(0, idGone))
		}
	} else {
		s.room(w.table, 1, false).insert(w.hash, op.Cell.Key, word, st.At, nil)
		added = true
	}
	s.diesAt(w.table, st.EmptyAt)
	return added
}

// keepRich writes a cell as an object.
func (s *Store) keepRich(w *work, op *law.Op, simple bool) (added bool) {
	r, st := w.rich, &w.rec.State
	// Who reads a plain object without a lock relies on its parameters, and on
	// a time that never runs backwards.
	if r == nil || simple && (*r.params != op.Params || st.At < r.at.Load()) {
		r = s.newRich(w.limit, &op.Params)
	}
	r.state, r.reason, r.log, r.known = *st, w.rec.Reason, w.log, w.known
	word, at := wordOf(0, idOther), r.at.Load()
	if simple {
		word, at = wordOf(st.Level, idPlain), st.At
	}
	dead := r.deadAt(word)
	if simple {
		dead = st.EmptyAt
	}
	if r != w.rich {
		if w.there {
			t := s.room(w.table, 0, true)
			i := t.find(w.hash)
			t.slots[i].lock()
			t.rich[i].Store(r)
			t.slots[i].write(wordOf(0, idRich), 0)
		} else {
			s.room(w.table, 1, true).insert(w.hash, op.Cell.Key, wordOf(0, idRich), 0, r)
			added = true
		}
	}
	r.set(word, at)
	if w.rich != nil && w.rich != r {
		w.rich.word.Store(wordOf(0, idGone))
	}
	if r.log != nil || r.known != nil {
		s.tables[w.table].Load().logs = true
	}
	s.diesAt(w.table, dead)
	return added
}
