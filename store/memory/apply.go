package memory

import (
	"context"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Apply implements store.Store. Each group is atomic. The groups of a batch are applied in order; groups of other
// batches may come between them.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i, j := 0, law.GroupEnd(ops, 0); i < len(ops); i, j = j, law.GroupEnd(ops, j) {
		if j > i+1 || !isPlain(&ops[i]) || !s.applyPlain(&ops[i], &outs[i]) {
			s.applyGroup(ops[i:j], outs[i:j])
		}
	}
	return nil
}

// isPlain reports whether law.TakePlain can decide an op.
func isPlain(op *law.Op) bool {
	return op.Plain() && op.Params.Plain() && op.Now == 0 && op.Cost >= 1 && op.Cost <= law.Max
}

// applyPlain decides a plain charge, if its cell is plain too, or new and has room. It reports whether it has.
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
	if level != 0 || at != 0 { // else the cell is still fresh
		out.State = op.Params.PlainState(level, at)
	}
	return true
}

// applyGroup applies a group with package law, and makes room for its new cells. It locks the tables of the group in
// order, so that groups that share tables cannot deadlock.
func (s *Store) applyGroup(ops []law.Op, outs []law.Outcome) {
	if err := law.ValidGroup(ops); err != nil {
		law.FailAll(outs, err)
		return
	}
	sc := s.scratch.Get().(*scratch)
	defer s.scratch.Put(sc)
	sc.plan(s, ops)
	for {
		l, bytes := s.applyLocked(sc, ops, outs) // both are zero once the group is applied
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
				law.FailAll(outs, s.fullError(l))
			}
			break
		}
		if l != nil {
			sc.spareLimits = append(sc.spareLimits, l)
		}
	}
	for _, l := range sc.spareLimits {
		s.release(l)
	}
	s.usedBytes.Add(-sc.reservedBytes) // writeBack has counted the bytes that were added
	sc.reservedBytes = 0
	clear(sc.work)
	clear(sc.spareLimits)
	sc.spareLimits = sc.spareLimits[:0]
}

// applyLocked locks the tables of a group and applies it. If there is no room for a new cell it applies nothing, and
// returns the limit of that cell. If there is none for log entries and receipts, it returns their bytes.
func (s *Store) applyLocked(sc *scratch, ops []law.Op, outs []law.Outcome) (fullLimit *limit, bytes int64) {
	for _, i := range sc.tables {
		s.lock(i)
		defer s.unlockAt(i)
	}
	now := s.clock()
	for _, i := range sc.tables {
		s.tidy(i, now)
	}
	for retry := true; retry; {
		s.find(sc, ops)
		if fullLimit, retry = s.reserveAll(sc, now); fullLimit != nil {
			return fullLimit, 0
		}
	}
	for i := range sc.work {
		if w := &sc.work[i]; w.firstOp == i {
			s.load(w, &ops[i])
		}
	}
	if bytes = sc.maxNewBytes(ops); !s.reserveBytes(sc, bytes) {
		for i := range sc.work {
			w := &sc.work[i]
			if w.rich != nil {
				w.rich.word.Store(w.word)
			}
			if w.isReserved {
				sc.spareLimits = append(sc.spareLimits, w.limit)
			}
			// The next attempt may find another cell.
			w.record, w.log, w.receipts, w.oldBytes, w.rich = law.Record{}, nil, nil, 0, nil
		}
		return nil, bytes
	}
	law.Apply(ops, outs, now, sc.records)
	for i, r := range sc.records {
		for k := range r.Add {
			if r.Add[k].Number == 0 {
				r.Add[k].Number = s.lastNumber.Add(1)
			}
		}
		r.SetEntryNumber(&outs[i])
	}
	for i := range sc.work {
		if w := &sc.work[i]; w.firstOp == i {
			if added := s.writeBack(w, &ops[i]); w.isReserved && !added {
				s.release(w.limit)
			}
		}
	}
	return nil, 0
}

// load fills the record of a cell from its slot or object. It locks the object.
func (s *Store) load(w *work, op *law.Op) {
	t := s.tables[w.table].Load()
	if w.exists {
		i := t.find(w.hash)
		sl := &t.slots[i]
		word := sl.waitUnlocked()
		if id := idOf(word); id != idRich {
			d := s.defs.get(id)
			w.limit, w.record.State = d.limit, d.params.PlainState(levelOf(word), sl.time())
		} else {
			w.rich = t.richAt(i)
			w.word, w.limit = w.rich.lock(), w.rich.limit
			w.record.State, w.record.Reason = w.rich.load(w.word), w.rich.reason
			w.log, w.receipts = w.rich.log, w.rich.receipts
			w.oldBytes = w.log.bytes() + w.receipts.bytes()
		}
	}
	if w.log == nil && op.Params.Kind == law.Log {
		w.log = &entries{}
	}
	if w.log != nil {
		w.record.Log = w.log
	}
	w.record.Receipts = w.receipts
}

// writeBack writes what the law has decided about a cell, and reports whether it made the cell. It unlocks the object.
func (s *Store) writeBack(w *work, op *law.Op) (added bool) {
	r := &w.record
	if !r.Dirty && !r.Gone && !r.Clear && !r.Forget && len(r.Renew)+len(r.Lower)+len(r.Add)+len(r.Admit) == 0 {
		if w.rich != nil {
			w.rich.word.Store(w.word)
		}
		return false
	}
	w.updateLog()
	s.usedBytes.Add(w.log.bytes() + w.receipts.bytes() - w.oldBytes)
	hasLogOrReceipts := w.log != nil && len(w.log.list) > 0 || w.receipts.len() > 0
	if r.State.Kind == 0 && !hasLogOrReceipts {
		s.forget(w)
		return false
	}
	st, p := &r.State, &op.Params
	isPlainCell := p.Plain() && !hasLogOrReceipts && r.Reason == "" && *st == p.PlainState(st.Level, st.At)
	if isPlainCell {
		if id := s.defs.id(w.limit, p); id != 0 {
			return s.keepPlain(w, op, id)
		}
	}
	return s.keepRich(w, op, isPlainCell)
}

// maxNewBytes returns about how many bytes of log entries and receipts a group adds at most. It leaves out ops that
// settle, give back or renew: they add none, and must not be refused for lack of room. It leaves out retries too.
func (sc *scratch) maxNewBytes(ops []law.Op) (n int64) {
	for i := range ops {
		op := &ops[i]
		if op.Verb == law.Block || op.Verb != law.Extend && !creates(op) {
			continue
		}
		if _, isRetry := sc.work[sc.work[i].firstOp].receipts.Receipt(op.ID); isRetry && op.Verb == law.Take {
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

// updateLog changes the log and the receipts of a cell as the law has decided.
func (w *work) updateLog() {
	r := &w.record
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
		w.receipts = nil
	}
	if len(r.Admit) > 0 && w.receipts == nil {
		w.receipts = &register{}
	}
	for i := range r.Admit {
		r.SetEntryNumber(&r.Admit[i].Outcome)
		w.receipts.admit(r.Admit[i], r.Admit[i].Outcome.Clock)
	}
}

// forget removes a cell, and gives its room back.
func (s *Store) forget(w *work) {
	if w.rich != nil {
		w.rich.word.Store(wordOf(0, idGone))
	}
	if w.exists {
		t := s.tables[w.table].Load()
		t.remove(t.find(w.hash))
		s.release(w.limit)
	}
}

// keepPlain writes a cell into its slot, as a level and a time. It reports whether it made the cell.
func (s *Store) keepPlain(w *work, op *law.Op, id uint64) (added bool) {
	st := &w.record.State
	word := wordOf(st.Level, id)
	if w.exists {
		t := s.tables[w.table].Load()
		i := t.find(w.hash)
		t.slots[i].lock()
		t.slots[i].update(word, st.At)
		if w.rich != nil {
			t.rich[i].Store(nil)
			w.rich.word.Store(wordOf(0, idGone))
		}
	} else {
		s.tableWithRoom(w.table, 1, false).insert(w.hash, op.Cell.Key, word, st.At, nil)
		added = true
	}
	s.noteDeath(w.table, st.EmptyAt)
	return added
}

// keepRich writes a cell as an object, and reports whether it made the cell. A plain cell is a level and a time.
func (s *Store) keepRich(w *work, op *law.Op, isPlainCell bool) (added bool) {
	r, st := w.rich, &w.record.State
	// A reader without a lock relies on the object's parameters, and on a time that never runs backwards.
	if r == nil || isPlainCell && (*r.params != op.Params || st.At < r.at.Load()) {
		r = s.newRich(w.limit, &op.Params)
	}
	r.state, r.reason, r.log, r.receipts = *st, w.record.Reason, w.log, w.receipts
	word, at := wordOf(0, idOther), r.at.Load()
	if isPlainCell {
		word, at = wordOf(st.Level, idPlain), st.At
	}
	deadAt := r.deadAt(word)
	if isPlainCell {
		deadAt = st.EmptyAt
	}
	if r != w.rich {
		if w.exists {
			t := s.tableWithRoom(w.table, 0, true)
			i := t.find(w.hash)
			t.slots[i].lock()
			t.rich[i].Store(r)
			t.slots[i].update(wordOf(0, idRich), 0)
		} else {
			s.tableWithRoom(w.table, 1, true).insert(w.hash, op.Cell.Key, wordOf(0, idRich), 0, r)
			added = true
		}
	}
	r.set(word, at)
	if w.rich != nil && w.rich != r {
		w.rich.word.Store(wordOf(0, idGone))
	}
	if r.log != nil || r.receipts != nil {
		s.tables[w.table].Load().mayHaveLogs = true
	}
	s.noteDeath(w.table, deadAt)
	return added
}
