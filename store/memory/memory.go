// Package memory keeps cells in this process. State ends with the process.
package memory

import (
	"cmp"
	"context"
	"hash/maphash"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
	_ store.Informer  = (*Store)(nil)
	_ store.Catalog   = (*Store)(nil)
)

// DefaultMaxKeys and DefaultMaxTotal bound the cells of one limit, and of all limits together: a flood of keys in one
// limit leaves room for the others.
const (
	DefaultMaxKeys  = 1_000_000
	DefaultMaxTotal = 2_000_000
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock is the store's clock. Nil: the clock of this machine, which TakeOne reads once a millisecond while there
	// are many decisions.
	Clock store.Clock

	// MaxKeys is how many keys each limit may have. 0: DefaultMaxKeys, below 0: no bound.
	MaxKeys int
	// MaxTotal is how many keys all limits may have together. 0: DefaultMaxTotal, or twice MaxKeys if that is more, or
	// no bound if MaxKeys has none; below 0: no bound.
	MaxTotal int
	// MaxBytes bounds the memory of the attempts that logs keep, some 100 bytes each, and of the requests with an id
	// that are remembered, some 450 bytes each. Ids are included. 0: no bound.
	MaxBytes int64

	// Names keeps the names of keys, so that cells can be listed. A query for one limit and key works without. It takes
	// the length of each key, and 6 bytes a cell.
	Names bool
}

// Store keeps cells in tables, sharded by a hash of limit and key. It is safe for concurrent use. While it decides many
// times a millisecond by the clock of this machine, one goroutine reads the clock for it, and ends by itself.
//
// It holds a bounded number of cells. When a limit has as many as it may, a new key takes the place of a cell in which
// nothing counts any more. If there is no such cell, a request that would make a cell fails with store.ErrFull: nothing
// is charged or blocked. Keys that have a cell are decided as before. When Config.MaxBytes is reached, requests of
// limits that keep a log fail in the same way, and so do requests with an id.
type Store struct {
	clock        store.Clock
	coarse       *coarse.Clock // nil: clock is the caller's
	names        bool
	maxPerLimit  int64 // the most cells of a limit
	maxTotal     int64 // the most cells of all limits
	maxBytes     int64 // the most bytes of attempts and requests
	seeds        [4]maphash.Seed
	shift        uint                      // hash.hi >> shift is the index of a table
	tables       []atomic.Pointer[table]   // nil until used
	cachedLimits [64]atomic.Pointer[limit] // some limits of byName, by a hash of the name
	defs         definitions
	closed       atomic.Bool

	catalog

	_            [64]byte      // keeps the fields that are only read off the cache lines of those that are written
	cellCount    atomic.Int64  // cells held or reserved
	usedBytes    atomic.Int64  // bytes of attempts and requests, with what running groups have reserved
	lastNumber   atomic.Int64  // the number of the last log entry
	soonestDeath atomic.Int64  // no cell can be forgotten before this time
	sweepAt      atomic.Int64  // the table at which Sweep goes on
	evictMu      sync.Mutex    // guards evictAt
	evictAt      int           // the table at which makeRoom goes on
	scratch      sync.Pool     // of *scratch
	listing      chan struct{} // empty while a list of keys is made

	limitsMu sync.Mutex        // guards byName, retireAt and limit.isCached; no other lock is taken under it
	byName   map[string]*limit // the limits that have cells, and some more
	retireAt int               // how large byName has to be before limits without cells are retired
}

// perTable is how many cells a table holds at most, on average: so few that visiting or moving all causes no pause.
const perTable = 512

// tablesUnbound is the number of tables of a store without a bound.
const tablesUnbound = 1 << 14

// New returns an empty store.
func New(cfg *Config) *Store {
	cfg = cmp.Or(cfg, &Config{})
	s := &Store{clock: cfg.Clock, names: cfg.Names, byName: map[string]*limit{}, listing: make(chan struct{}, 1)}
	s.listing <- struct{}{}
	s.maxPerLimit, s.maxTotal = bounds(cfg)
	if s.maxBytes = cfg.MaxBytes; s.maxBytes <= 0 {
		s.maxBytes = unbounded
	}
	if s.clock == nil {
		s.clock, s.coarse = store.SystemClock, &coarse.Clock{}
	}
	s.catalog.ready, s.catalog.clock, s.items = s.ready, s.clock, map[store.Item]versionedItem{}
	for i := range s.seeds {
		s.seeds[i] = maphash.MakeSeed()
	}
	tables := int64(64)
	if s.maxTotal == unbounded {
		tables = tablesUnbound
	}
	for s.maxTotal < unbounded && tables*perTable < s.maxTotal {
		tables *= 2
	}
	s.shift = 64 - uint(bits.TrailingZeros64(uint64(tables))) // tables is a power of two
	s.tables = make([]atomic.Pointer[table], tables)
	s.defs.table.Store(&definitionTable{})
	s.scratch.New = func() any { return &scratch{} }
	return s
}

// unbounded is a number of cells, and of bytes, that no store has.
const unbounded = math.MaxInt64

// bounds returns how many cells each limit, and all limits together, may have.
func bounds(cfg *Config) (perLimit, total int64) {
	if perLimit = int64(cmp.Or(cfg.MaxKeys, DefaultMaxKeys)); perLimit < 0 {
		perLimit = unbounded
	}
	switch total = int64(cfg.MaxTotal); {
	case total < 0, total == 0 && perLimit > unbounded/2:
		total = unbounded
	case total == 0:
		total = max(DefaultMaxTotal, 2*perLimit)
	}
	return perLimit, total
}

// ready returns why the store cannot be used, or nil.
func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Info implements store.Informer.
func (s *Store) Info() store.Info { return store.Info{Local: true} }

// Close implements store.Store. All state is lost.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
