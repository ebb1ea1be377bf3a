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

// How many cells a store holds by default: of each limit, and of all
// limits together. So a limit that is flooded leaves room for the others.
const (
	DefaultMaxKeys  = 1_000_000
	DefaultMaxTotal = 2_000_000
)

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	// Clock is the store's. Nil: this machine's, which is read once a
	// millisecond for many decisions while there are many.
	Clock store.Clock

	// MaxKeys is how many keys each limit may have. 0: DefaultMaxKeys, below 0: no bound.
	MaxKeys int
	// MaxTotal is how many keys all limits may have together. 0: DefaultMaxTotal, or
	// twice MaxKeys if that is more or has no bound; below 0: no bound.
	MaxTotal int
	// MaxBytes is how many bytes the attempts of limits that keep a log, and the requests
	// with an id that are remembered, may take together: some 100 for an attempt, and 450
	// for a request, with their ids. 0: no bound.
	MaxBytes int64

	// Names keeps the names of keys, so that cells can be listed. A key that is named
	// can be looked at without. It costs what the keys take, and 6 bytes a cell.
	Names bool
}

// Store keeps cells in tables, sharded by a hash of limit and key. It is safe
// for concurrent use. While it decides many times a millisecond, one goroutine
// reads the clock for it, and ends by itself.
//
// It holds a bounded number of cells. When a limit has as many as it may, a new key
// takes the place of one in which nothing counts any more. If there is none, a request
// that would make a cell fails with store.ErrFull: nothing is charged or blocked. Keys
// that have a cell are decided as before. Where Config.MaxBytes is reached, the same
// happens to requests of limits that keep a log, and to those with an id.
type Store struct {
	clock  store.Clock
	coarse *coarse.Clock // nil: clock is the caller's
	names  bool
	each   int64 // cells of a limit at most
	most   int64 // of all together
	within int64 // bytes of attempts and requests at most
	seeds  [4]maphash.Seed
	shift  uint                      // of a hash, to the index of its table
	tables []atomic.Pointer[table]   // nil until used
	limits [64]atomic.Pointer[limit] // some of those in byName, by name
	params definitions
	closed atomic.Bool

	catalog

	_       [64]byte      // what follows is written to
	count   atomic.Int64  // cells held or reserved
	bytes   atomic.Int64  // of attempts and requests, those included that a group may add
	number  atomic.Int64  // of the last log entry
	soonest atomic.Int64  // no cell can be forgotten before this time
	swept   atomic.Int64  // the table at which Sweep goes on
	evictor sync.Mutex    // guards evictAt
	evictAt int           // the table in which room was found last
	scratch sync.Pool     // of *scratch
	listing chan struct{} // has an element unless a list of keys is being made

	known  sync.Mutex        // guards byName and retireAt; no other lock is taken under it
	byName map[string]*limit // those that have cells, and some more
	retire int               // at how many to look for those that have none
}

// perTable is how many cells a table holds when the store is full: so few that
// to look at all of them, or to move them, is no pause.
const perTable = 512

// tablesUnbound is the number of tables of a store without a bound.
const tablesUnbound = 1 << 14

// New returns an empty store.
func New(cfg *Config) *Store {
	cfg = cmp.Or(cfg, &Config{})
	s := &Store{clock: cfg.Clock, names: cfg.Names, byName: map[string]*limit{}, listing: make(chan struct{}, 1)}
	s.listing <- struct{}{}
	s.each, s.most = bounds(cfg)
	if s.within = cfg.MaxBytes; s.within <= 0 {
		s.within = unbounded
	}
	if s.clock == nil {
		s.clock, s.coarse = store.SystemClock, &coarse.Clock{}
	}
	s.catalog.ready, s.catalog.clock, s.items = s.ready, s.clock, map[store.Item]entry{}
	for i := range s.seeds {
		s.seeds[i] = maphash.MakeSeed()
	}
	tables := int64(64)
	if s.most == unbounded {
		tables = tablesUnbound
	}
	for s.most < unbounded && tables*perTable < s.most {
		tables *= 2
	}
	s.shift = 64 - uint(bits.TrailingZeros64(uint64(tables))) // which is a power of two
	s.tables = make([]atomic.Pointer[table], tables)
	s.params.known.Store(&definitionTable{})
	s.scratch.New = func() any { return &scratch{} }
	return s
}

// unbounded is a number of cells that no store has.
const unbounded = math.MaxInt64

// bounds returns how many cells each limit, and all together, may have.
func bounds(cfg *Config) (each, total int64) {
	if each = int64(cmp.Or(cfg.MaxKeys, DefaultMaxKeys)); each < 0 {
		each = unbounded
	}
	switch total = int64(cfg.MaxTotal); {
	case total < 0, total == 0 && each > unbounded/2:
		total = unbounded
	case total == 0:
		total = max(DefaultMaxTotal, 2*each)
	}
	return each, total
}

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

// Info implements store.Informer.
func (s *Store) Info() store.Info { return store.Info{Local: true} }

// Close implements store.Store. What was kept is forgotten.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
