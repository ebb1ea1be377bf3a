package memory

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// scratch has the buffers to apply a group. A pool keeps them for the next group.
type scratch struct {
	work          []work
	records       []*law.Record
	tables        []int    // the indexes of the group's tables, ascending, without duplicates
	spareLimits   []*limit // each has room reserved for one cell that no op uses yet
	reservedBytes int64    // of log entries and receipts: see reserveBytes
}

// work is an op of a group. The fields after firstOp describe the cell, and are set only in the first op on that cell.
type work struct {
	hash    hash
	table   int // index of the cell's table
	firstOp int // index of the first op on the same cell

	creates    bool   // an op on the cell may make it, if it does not exist
	exists     bool   // the cell is in the table
	limit      *limit // the limit of the cell
	isReserved bool   // room is reserved for the cell, which does not exist
	record     law.Record
	log        *entries
	receipts   *register
	oldBytes   int64  // the size of log and receipts before the group
	rich       *rich  // the cell's object, locked, or nil
	word       uint64 // the word of rich
}

// plan fills work, records and tables for a group: which tables it needs, and which ops share a cell.
func (sc *scratch) plan(s *Store, ops []law.Op) {
	sc.work = slices.Grow(sc.work[:0], len(ops))[:len(ops)]
	sc.records = slices.Grow(sc.records[:0], len(ops))[:len(ops)]
	sc.tables = sc.tables[:0]
	for i := range ops {
		h := s.hash(&ops[i].Cell)
		w := &sc.work[i]
		*w = work{hash: h, table: s.tableOf(h), firstOp: i}
		for j := range i {
			if sc.work[j].hash == h {
				w.firstOp = j
				break
			}
		}
		sc.work[w.firstOp].creates = sc.work[w.firstOp].creates || creates(&ops[i])
		sc.records[i] = &sc.work[w.firstOp].record
		sc.tables = append(sc.tables, w.table)
	}
	slices.Sort(sc.tables)
	sc.tables = slices.Compact(sc.tables)
}

// creates reports whether an op may make a cell that does not exist.
func creates(op *law.Op) bool {
	switch op.Verb {
	case law.Take, law.Block:
		return true
	case law.Return:
		return op.Cost < 0
	}
	return false
}

// find finds out which cells of a group exist, and the limits of those that do not. It unsets isReserved.
func (s *Store) find(sc *scratch, ops []law.Op) {
	for i := range sc.work {
		if w := &sc.work[i]; w.firstOp == i {
			w.limit, w.isReserved = nil, false
			w.exists = s.tables[w.table].Load().find(w.hash) >= 0
			if !w.exists {
				w.limit = s.limitOf(ops[i].Cell.Limit)
			}
		}
	}
}

// reserveAll reserves room for the cells that a group may make. If there is no room for a cell, it returns the limit of
// that cell. If it had to remove dead cells from the tables of the group, it returns retry: the caller calls find
// again, because a removed cell may be one of the group's.
func (s *Store) reserveAll(sc *scratch, now int64) (fullLimit *limit, retry bool) {
	for i := range sc.work {
		w := &sc.work[i]
		if w.firstOp != i || !w.creates || w.exists {
			continue
		}
		if w.isReserved = sc.takeSpare(w.limit) || s.reserve(w.limit); w.isReserved {
			continue
		}
		for k := range i {
			if sc.work[k].isReserved {
				sc.spareLimits = append(sc.spareLimits, sc.work[k].limit)
			}
		}
		for _, ti := range sc.tables {
			if s.makeRoomIn(s.tables[ti].Load(), func() bool { return s.reserve(w.limit) }, now) {
				sc.spareLimits = append(sc.spareLimits, w.limit)
				return nil, true
			}
		}
		return w.limit, false
	}
	return nil, false
}

// reserveBytes raises the reservation of a group to this many bytes, and reports whether there was room.
func (s *Store) reserveBytes(sc *scratch, bytes int64) bool {
	ok := bytes <= sc.reservedBytes || addUpTo(&s.usedBytes, bytes-sc.reservedBytes, s.maxBytes)
	if ok {
		sc.reservedBytes = max(sc.reservedBytes, bytes)
	}
	return ok
}

// takeSpare uses up room for a cell of a limit that is reserved already, and reports whether there was any.
func (sc *scratch) takeSpare(l *limit) bool {
	i := slices.Index(sc.spareLimits, l)
	if i >= 0 {
		sc.spareLimits = slices.Delete(sc.spareLimits, i, i+1)
	}
	return i >= 0
}
