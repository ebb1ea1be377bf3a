package memory

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/law"
)

// hash identifies a cell. It has so many bits that a store in practice never confuses two cells, and random seeds, so
// that nobody can make two cells collide. lo is odd, and so never 0, which marks a free slot.
type hash struct{ hi, lo uint64 }

// tag returns the lowest 11 bits of hi, shifted into the bits that a time leaves free. The tag, 63 bits of lo, and
// the highest bits of hi, which choose the table (12 by default), distinguish cells: 86 bits. The chance that two of
// a million cells share them is below 1 in 10^13.
func (h hash) tag() int64 { return int64(h.hi << timeBits) }

func (s *Store) hash(c *law.Cell) hash {
	l := s.limitHash(c.Limit)
	return hash{
		sched.HashString(s.seeds[0], c.Key) ^ l.hi,
		sched.HashString(s.seeds[1], c.Key) ^ l.lo | 1,
	}
}

// limit has the hash of a limit's name, and counts the limit's cells.
type limit struct {
	name     string
	hash     hash
	isCached bool     // it is in Store.cachedLimits, and is never retired; guarded by Store.limitsMu
	_        [24]byte // decisions read the fields before; new and removed keys write those after

	cellCount     atomic.Int64 // cells held or reserved; or the constant retired
	hasDefinition atomic.Bool  // one of its definitions has a number, so it is never retired
}

// retired is the cellCount of a limit that the store has forgotten. Another limit may have its name.
const retired = -1

// retireFrom is how many limits a store knows before it forgets limits without cells.
const retireFrom = 1024

// limitHash returns the hash of a limit's name. Limits are few, and callers mostly pass the same string, which Go
// compares without reading it.
func (s *Store) limitHash(name string) hash {
	if name == "" {
		return hash{}
	}
	place := &s.cachedLimits[(len(name)*7+int(name[len(name)-1]))%len(s.cachedLimits)]
	l := place.Load()
	if l != nil && l.name == name {
		return l.hash
	}
	if l == nil && len(name) <= law.MaxName {
		return s.cacheLimit(place, name).hash
	}
	return s.newHash(name)
}

func (s *Store) newHash(name string) hash {
	return hash{sched.HashString(s.seeds[2], name), sched.HashString(s.seeds[3], name)}
}

// cacheLimit returns the limit of a name, and caches it at a place of cachedLimits unless another limit is there.
func (s *Store) cacheLimit(place *atomic.Pointer[limit], name string) *limit {
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	l := s.limitLocked(name)
	if place.CompareAndSwap(nil, l) {
		l.isCached = true
	}
	return l
}

// limitOf returns the limit of a name, which is not retired. It may be retired as soon as limitOf returns, unless a
// cell of it is held or reserved.
func (s *Store) limitOf(name string) *limit {
	if l := s.cachedLimits[(len(name)*7+int(name[len(name)-1]))%len(s.cachedLimits)].Load(); l != nil &&
		l.name == name {
		return l
	}
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	return s.limitLocked(name)
}

// limitLocked returns the limit of a name, and makes it if there is none. The caller holds limitsMu.
func (s *Store) limitLocked(name string) *limit {
	if l := s.byName[name]; l != nil {
		return l
	}
	if len(s.byName) >= max(s.retireAt, retireFrom) {
		for _, l := range s.byName {
			if !l.isCached && !l.hasDefinition.Load() && l.cellCount.CompareAndSwap(0, retired) {
				delete(s.byName, l.name)
			}
		}
		s.retireAt = 2 * len(s.byName)
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

// maxDefinitions bounds the definitions that have a number. A cell of any other definition is rich.
const maxDefinitions = idMask - 1

// definitions numbers the definitions of plain cells from 1. Their parameters are valid.
type definitions struct {
	mu    sync.Mutex // serializes writers
	table atomic.Pointer[definitionTable]
}

type definitionTable struct {
	ids  map[definition]uint64
	list [idMask + 1]*definition // by id; nil if unused
}

// get returns the definition with an id, or nil.
func (d *definitions) get(id uint64) *definition { return d.table.Load().list[id] }

// id returns the number of a definition, or 0 if none is left. The caller holds or has reserved a cell of the limit.
func (d *definitions) id(l *limit, p *law.Params) uint64 {
	def := definition{l, *p}
	table := d.table.Load()
	if id := table.ids[def]; id != 0 || len(table.ids) == maxDefinitions {
		return id
	}
	return d.add(def)
}

// add returns the number of a definition, after it has numbered it if need be.
func (d *definitions) add(def definition) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	table := d.table.Load()
	if id := table.ids[def]; id != 0 || len(table.ids) == maxDefinitions {
		return id
	}
	def.limit.hasDefinition.Store(true)
	next := &definitionTable{ids: make(map[definition]uint64, len(table.ids)+1), list: table.list}
	maps.Copy(next.ids, table.ids)
	id := uint64(len(next.ids) + 1)
	next.ids[def], next.list[id] = id, &def
	d.table.Store(next)
	return id
}
