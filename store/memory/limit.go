package memory

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// hash is what a cell is known by: seeded bits, enough that no two cells of a store
// are ever taken for one another, and nobody can make them. lo is odd, and so never 0,
// which marks a free slot.
type hash struct{ hi, lo uint64 }

// tag returns the lowest 11 bits of hi in the place that a time leaves free. So what distinguishes cells are
// these, 63 bits of lo, and the highest bits of hi, which choose the table: 12 of them by default, 86 bits in
// all. The chance that any two of a million cells have them in common is below 1 in 10^13.
func (h hash) tag() int64 { return int64(h.hi << timeBits) }

func (s *Store) hash(c *law.Cell) hash {
	l := s.limitHash(c.Limit)
	return hash{
		sched.HashString(s.seeds[0], c.Key) ^ l.hi,
		sched.HashString(s.seeds[1], c.Key) ^ l.lo | 1,
	}
}

// limit is what a store knows of a limit: the part of a hash that comes from its
// name, and how many cells it has.
type limit struct {
	name string
	hash hash
	kept bool     // it is in Store.limits, and stays known; guarded by Store.known
	_    [24]byte // decisions read what stands before, keys that come and go write what follows

	count atomic.Int64 // cells held or reserved; retired: it is not known any more
	used  atomic.Bool  // a definition of it has a number, so that it stays known
}

// retired is the count of a limit that the store does not know any more. Another may
// have its name.
const retired = -1

// retireFrom is at how many limits a store begins to forget those without cells.
const retireFrom = 1024

// limitHash returns the hash of a limit's name. Limits are few, and asked for by
// the same string most of the time, which is compared without being read.
func (s *Store) limitHash(name string) hash {
	if name == "" {
		return hash{}
	}
	at := &s.limits[(len(name)*7+int(name[len(name)-1]))%len(s.limits)]
	known := at.Load()
	if known != nil && known.name == name {
		return known.hash
	}
	if known == nil && len(name) <= law.MaxName {
		return s.keep(at, name).hash
	}
	return s.newHash(name)
}

func (s *Store) newHash(name string) hash {
	return hash{sched.HashString(s.seeds[2], name), sched.HashString(s.seeds[3], name)}
}

// keep puts a limit where it is found by one comparison, unless another came first.
func (s *Store) keep(at *atomic.Pointer[limit], name string) *limit {
	s.known.Lock()
	defer s.known.Unlock()
	l := s.named(name)
	if at.CompareAndSwap(nil, l) {
		l.kept = true
	}
	return l
}

// limitOf returns a limit that is not retired, but may be as soon as it returns,
// unless a cell of it is held or reserved.
func (s *Store) limitOf(name string) *limit {
	if known := s.limits[(len(name)*7+int(name[len(name)-1]))%len(s.limits)].Load(); known != nil &&
		known.name == name {
		return known
	}
	s.known.Lock()
	defer s.known.Unlock()
	return s.named(name)
}

// named is limitOf for a caller who holds Store.known.
func (s *Store) named(name string) *limit {
	if l := s.byName[name]; l != nil {
		return l
	}
	if len(s.byName) >= max(s.retire, retireFrom) {
		for _, l := range s.byName {
			if !l.kept && !l.used.Load() && l.count.CompareAndSwap(0, retired) {
				delete(s.byName, l.name)
			}
		}
		s.retire = 2 * len(s.byName)
	}
	l := &limit{name: strings.Clone(name), hash: s.newHash(name)}
	s.byName[l.name] = l
	return l
}

// definition is a limit with its parameters.
type definition struct {
	limit  *limit
	params law.Params
}

// maxDefinitions is how many different definitions plain cells can have in tables.
// Cells of others have an object each.
const maxDefinitions = idMask - 1

// intern numbers definitions, from 1. Their parameters are valid, and of plain cells.
type intern struct {
	mu    sync.Mutex // serializes writers
	known atomic.Pointer[interned]
}

type interned struct {
	ids  map[definition]uint64
	list [idMask + 1]*definition // by id; nil for those that are no numbers
}

// of returns the definition with a number that was given out.
func (n *intern) of(id uint64) *definition { return n.known.Load().list[id] }

// id returns the number of a definition, or 0 if there is none left. A cell of the
// limit is held or reserved.
func (n *intern) id(l *limit, p *law.Params) uint64 {
	d := definition{l, *p}
	known := n.known.Load()
	if id := known.ids[d]; id != 0 || len(known.ids) == maxDefinitions {
		return id
	}
	return n.add(d)
}

func (n *intern) add(d definition) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.known.Load()
	if id := known.ids[d]; id != 0 || len(known.ids) == maxDefinitions {
		return id
	}
	d.limit.used.Store(true)
	next := &interned{ids: make(map[definition]uint64, len(known.ids)+1), list: known.list}
	maps.Copy(next.ids, known.ids)
	id := uint64(len(next.ids) + 1)
	next.ids[d], next.list[id] = id, &d
	n.known.Store(next)
	return id
}
