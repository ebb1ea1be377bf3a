package memory

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// hash identifies a cell by seeded bits, enough that a store never confuses two cells, and nobody can make them
// collide. lo is odd, and so never 0, which marks a free slot.
type hash struct{ hi, lo uint64 }

// tag returns the lowest 11 bits of hi in the place that a time leaves free. These, 63 bits of lo, and the highest
// bits of hi, which choose the table (12 by default), distinguish cells: 86 bits. The chance that two of a million
// cells share them is below 1 in 10^13.
func (h hash) tag() int64 { return int64(h.hi << timeBits) }

func (s *Store) hash(c *law.Cell) hash {
	l := s.limitHash(c.Limit)
	return hash{
		sched.HashString(s.seeds[0], c.Key) ^ l.hi,
		sched.HashString(s.seeds[1], c.Key) ^ l.lo | 1,
	}
}

// limit has the part of a hash that comes from a limit's name, and counts its cells.
type limit struct {
	name   string
	hash   hash
	cached bool     // it is in Store.limits, and stays known; guarded by Store.known
	_      [24]byte // decisions read what stands before, keys that come and go write what follows

	count atomic.Int64 // cells held or reserved, or retired
	used  atomic.Bool  // a definition of it has a number, so that it stays known
}

// retired marks a limit that the store has forgotten. Another may have its name.
const retired = -1

// retireFrom limits make a store begin to forget those without cells.
const retireFrom = 1024

// limitHash returns the hash of a limit's name. Limits are few, and callers mostly pass the same string, which Go
// compares without reading it.
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
		return s.cacheLimit(at, name).hash
	}
	return s.newHash(name)
}

func (s *Store) newHash(name string) hash {
	return hash{sched.HashString(s.seeds[2], name), sched.HashString(s.seeds[3], name)}
}

// cacheLimit lets one comparison find a limit, unless another has the slot.
func (s *Store) cacheLimit(at *atomic.Pointer[limit], name string) *limit {
	s.known.Lock()
	defer s.known.Unlock()
	l := s.limitLocked(name)
	if at.CompareAndSwap(nil, l) {
		l.cached = true
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
	return s.limitLocked(name)
}

// limitLocked needs Store.known locked.
func (s *Store) limitLocked(name string) *limit {
	if l := s.byName[name]; l != nil {
		return l
	}
	if len(s.byName) >= max(s.retire, retireFrom) {
		for _, l := range s.byName {
			if !l.cached && !l.used.Load() && l.count.CompareAndSwap(0, retired) {
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

// maxDefinitions bounds the definitions of plain cells in tables. Cells of others have an object each.
const maxDefinitions = idMask - 1

// definitions numbers definitions from 1. Their parameters are valid, and of plain cells.
type definitions struct {
	mu    sync.Mutex // serializes writers
	known atomic.Pointer[definitionTable]
}

type definitionTable struct {
	ids  map[definition]uint64
	list [idMask + 1]*definition // by id; nil if unused
}

// get returns the definition of an id in use.
func (d *definitions) get(id uint64) *definition { return d.known.Load().list[id] }

// id returns the number of a definition, or 0 if there is none left. A cell of the
// limit is held or reserved.
func (d *definitions) id(l *limit, p *law.Params) uint64 {
	def := definition{l, *p}
	known := d.known.Load()
	if id := known.ids[def]; id != 0 || len(known.ids) == maxDefinitions {
		return id
	}
	return d.add(def)
}

func (d *definitions) add(def definition) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.known.Load()
	if id := known.ids[def]; id != 0 || len(known.ids) == maxDefinitions {
		return id
	}
	def.limit.used.Store(true)
	next := &definitionTable{ids: make(map[definition]uint64, len(known.ids)+1), list: known.list}
	maps.Copy(next.ids, known.ids)
	id := uint64(len(next.ids) + 1)
	next.ids[def], next.list[id] = id, &def
	d.known.Store(next)
	return id
}
