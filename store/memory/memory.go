// Package memory keeps cells in this process. State ends with the process.
package memory

import (
	"context"
	"hash/maphash"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Binder    = (*Store)(nil)
	_ store.Local     = (*Store)(nil)
)

// DefaultMaxKeys is how many cells a store holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock is the store's. Nil: this machine's, which is read once a
	// millisecond for many decisions while there are many.
	Clock   store.Clock
	MaxKeys int // cells held at most, whatever log entries and ids each of them keeps; 0: DefaultMaxKeys, below 0: no bound

	// Names keeps the names of limits and keys, so that they can be listed. A
	// key that is named can be looked at without. It costs what the names
	// take, and 32 bytes a cell.
	Names bool
}

// Store keeps cells in tables, sharded by a hash of limit and key. It is safe
// for concurrent use. While it decides many times a millisecond, one goroutine
// reads the clock for it, and ends by itself.
//
// It holds a bounded number of cells. When it is full, a new key takes the
// place of one that could refuse nobody; if there is none, its request fails
// with store.ErrFull, and nothing of it is admitted.
type Store struct {
	clock  store.Clock
	coarse *store.CoarseClock // nil: clock is the caller's
	names  bool
	most   int64 // cells
	seeds  [4]maphash.Seed
	shift  uint                    // of a hash, to the index of its table
	tables []atomic.Pointer[table] // nil until used
	limits [64]atomic.Pointer[limitName]
	params intern
	closed atomic.Bool

	_       [64]byte     // what follows is written to
	count   atomic.Int64 // cells held or reserved
	number  atomic.Int64 // of the last log entry
	soonest atomic.Int64 // no cell can be forgotten before this time
	swept   atomic.Int64 // the table at which Sweep goes on
	evictor sync.Mutex   // guards evictAt
	evictAt int          // the table in which room was found last
	scratch sync.Pool    // of *scratch
}

// perTable is how many cells a table holds when the store is full: so few that
// to look at all of them, or to move them, is no pause.
const perTable = 512

// tablesUnbound is the number of tables of a store without a bound.
const tablesUnbound = 1 << 14

// New returns an empty store.
func New(cfg *Config) *Store {
	if cfg == nil {
		cfg = &Config{}
	}
	s := &Store{clock: cfg.Clock, names: cfg.Names, most: int64(cfg.MaxKeys)}
	if s.clock == nil {
		s.clock, s.coarse = store.SystemClock, &store.CoarseClock{}
	}
	for i := range s.seeds {
		s.seeds[i] = maphash.MakeSeed()
	}
	tables := int64(64)
	switch {
	case s.most == 0:
		s.most = DefaultMaxKeys
	case s.most < 0:
		s.most, tables = math.MaxInt64, tablesUnbound
	}
	for s.most < math.MaxInt64 && tables*perTable < s.most {
		tables *= 2
	}
	s.shift = 64
	for n := tables; n > 1; n /= 2 {
		s.shift--
	}
	s.tables = make([]atomic.Pointer[table], tables)
	s.params.known.Store(&interned{})
	s.scratch.New = func() any { return &scratch{} }
	return s
}

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Local implements store.Local.
func (s *Store) Local() {}

// Close implements store.Store. What was kept is forgotten.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// hash is what a cell is known by: 127 seeded bits, so that no two cells of a
// store are ever taken for one another, and nobody can make them. lo is odd,
// and so never 0, which marks a free slot.
type hash struct{ hi, lo uint64 }

// limitName is the part of a hash that comes from the limit.
type limitName struct {
	name string
	hash hash
}

func (s *Store) hash(c *law.Cell) hash {
	l := s.limit(c.Limit)
	return hash{
		maphash.String(s.seeds[0], c.Key) ^ l.hi,
		maphash.String(s.seeds[1], c.Key) ^ l.lo | 1,
	}
}

// limit returns the hash of a limit's name. Limits are few, and asked for by
// the same string most of the time, which is compared without being read.
func (s *Store) limit(name string) hash {
	if name == "" {
		return hash{}
	}
	at := &s.limits[(len(name)*7+int(name[len(name)-1]))%len(s.limits)]
	known := at.Load()
	if known != nil && known.name == name {
		return known.hash
	}
	h := hash{maphash.String(s.seeds[2], name), maphash.String(s.seeds[3], name)}
	if known == nil && len(name) <= law.MaxName {
		at.CompareAndSwap(nil, &limitName{strings.Clone(name), h})
	}
	return h
}

// maxParams is how many different parameters plain cells can have in a table.
// Cells of others have an object each.
const maxParams = idMask - 1

// intern numbers parameters, from 1. They are valid, and of plain cells.
type intern struct {
	mu    sync.Mutex // serializes writers
	known atomic.Pointer[interned]
}

type interned struct {
	ids  map[law.Params]uint64
	list [idMask + 1]*law.Params // by id; nil for those that are no numbers
}

// of returns the parameters with a number that was given out.
func (n *intern) of(id uint64) *law.Params { return n.known.Load().list[id] }

// id returns the number of p, or 0 if there is none left.
func (n *intern) id(p *law.Params) uint64 {
	known := n.known.Load()
	if id := known.ids[*p]; id != 0 || len(known.ids) == maxParams {
		return id
	}
	return n.add(*p)
}

func (n *intern) add(p law.Params) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	known := n.known.Load()
	if id := known.ids[p]; id != 0 || len(known.ids) == maxParams {
		return id
	}
	next := &interned{ids: make(map[law.Params]uint64, len(known.ids)+1), list: known.list}
	maps.Copy(next.ids, known.ids)
	id := uint64(len(next.ids) + 1)
	next.ids[p], next.list[id] = id, &p
	n.known.Store(next)
	return id
}
