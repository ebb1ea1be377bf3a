package memory

import (
	"slices"

	"github.com/headgate/headgate/law"
)

// scratch has the buffers to apply a group, kept for the next one.
type scratch struct {
	work    []work
	records []*law.Record
	tables  []int    // ascending, each once
	spare   []*limit // for which room is reserved, for a cell each
	bytes   int64    // that are reserved
}

// work is an op of a group, and the cell, if it is the first on that cell.
type work struct {
	hash  hash
	table int
	first int // index of the first op on the same cell

	creates  bool   // an op on the cell may make it, if it is not there
	there    bool   // the cell is in the table
	limit    *limit // of the cell
	reserved bool   // there is room for the cell, which is not there
	rec      law.Record
	log      *entries
	known    *register
	bytes    int64  // of both, as they were
	rich     *rich  // its object, locked, or nil
	word     uint64 // of the object
}

// plan finds out which tables a group needs, and which ops share a cell.
func (sc *scratch) plan(s *Store, ops []law.Op) {
	sc.work = slices.Grow(sc.work[:0], len(ops))[:len(ops)]
	sc.records = slices.Grow(sc.records[:0], len(ops))[:len(ops)]
	sc.tables = sc.tables[:0]
	for i := range ops {
		h := s.hash(&ops[i].Cell)
		w := &sc.work[i]
		*w = work{hash: h, table: s.tableOf(h), first: i}
		for j := range i {
			if sc.work[j].hash == h {
				w.first = j
				break
			}
		}
		sc.work[w.first].creates = sc.work[w.first].creates || creates(&ops[i])
		sc.records[i] = &sc.work[w.first].rec
		sc.tables = append(sc.tables, w.table)
	}
	slices.Sort(sc.tables)
	sc.tables = slices.Compact(sc.tables)
}

// creates reports whether an op may make a cell that is not there.
func creates(op *law.Op) bool {
	switch op.Verb {
	case law.Take, law.Block:
		return true
	case law.Return:
		return op.Cost < 0
	}
	return false
}

// find finds out which cells of a group are there, and the limits of those that are
// not.
func (s *Store) find(sc *scratch, ops []law.Op) {
	for i := range sc.work {
		if w := &sc.work[i]; w.first == i {
			w.limit, w.reserved = nil, false
			w.there = s.tables[w.table].Load().find(w.hash) >= 0
			if !w.there {
				w.limit = s.limitOf(ops[i].Cell.Limit)
			}
		}
	}
}

// reserveAll reserves room for the cells of a group that it may make, or returns the
// limit of one for which there is none. It may have to be asked again, after
// it has removed dead cells from the tables of the group: they may be the group's.
func (s *Store) reserveAll(sc *scratch, now int64) (lacking *limit, again bool) {
	for i := range sc.work {
		w := &sc.work[i]
		if w.first != i || !w.creates || w.there {
			continue
		}
		if w.reserved = sc.takeSpare(w.limit) || s.reserve(w.limit); w.reserved {
			continue
		}
		for k := range i {
			if sc.work[k].reserved {
				sc.spare = append(sc.spare, sc.work[k].limit)
			}
		}
		for _, ti := range sc.tables {
			if s.roomIn(s.tables[ti].Load(), func() bool { return s.reserve(w.limit) }, now) {
				sc.spare = append(sc.spare, w.limit)
				return nil, true
			}
		}
		return w.limit, false
	}
	return nil, false
}

// reserveBytes makes what is reserved for a group this many bytes, if they may be had.
func (s *Store) reserveBytes(sc *scratch, bytes int64) bool {
	ok := bytes <= sc.bytes || add(&s.bytes, bytes-sc.bytes, s.within)
	if ok {
		sc.bytes = max(sc.bytes, bytes)
	}
	return ok
}

// takeSpare takes room for a cell of a limit that is reserved already.
func (sc *scratch) takeSpare(l *limit) bool {
	i := slices.Index(sc.spare, l)
	if i >= 0 {
		sc.spare = slices.Delete(sc.spare, i, i+1)
	}
	return i >= 0
}
