// Package deny repeats refusals without calling the store.
//
// A refusal names the earliest time at which the same cost can pass, whatever other clients do. Until then, and for at
// most a second at a time, it is repeated from memory. This never admits more; after a reset or a return by another
// process it may refuse for up to a second too long.
//
// Limits that keep a history need every attempt in the store, and a lease may be released before its time, so their
// refusals are never repeated; nor are those of ops that have an ID, a limited or test time, may start later or be
// granted in part. A refusal of a charge that leaves headroom is repeated only to charges that leave as much or more.
package deny

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"

	"github.com/headgate/headgate/internal/coarse"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/wrap"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.OneTaker  = (*Store)(nil)
	_ store.Unwrapper = (*Store)(nil)
)

const (
	// maxKeys is how many refusals are cached, some 300 bytes each.
	maxKeys = 100_000
	// maxRepeat is for how many microseconds a refusal is repeated at most, since another process may reset the key.
	maxRepeat = 1_000_000
)

// Store is a store in front of another. It is safe for concurrent use. Goroutines are only its cache's and clock's.
type Store struct {
	wrap.Inner
	cache     *otter.Cache[law.Cell, *refusal]
	clock     coarse.Clock
	startTime time.Time
	closed    atomic.Bool

	seed       maphash.Seed
	dropCounts [256]atomic.Uint32 // by hash of the cell: how often refusals were dropped
	lastGrants [256]atomic.Int64  // by hash of the cell: store's time of the last grant
	counters   [16]counter        // of repeated refusals
}

// counter is a counter with a cache line of its own.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

type refusal struct {
	params     law.Params
	maxLevel   int64       // highest level at which the refused op would pass
	out        law.Outcome // outcome of the refused op
	receivedAt int64       // when the answer came, by Store.now
	until      int64       // end of the refusal, by Store.now

	claimed   atomic.Bool   // after the end, one caller has begun to call the store for all
	refreshed chan struct{} // closed when that caller has the answer
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store) *Store {
	s := &Store{Inner: wrap.Around(inner), seed: maphash.MakeSeed(), startTime: sched.Now()}
	s.clock.Source = s.now
	s.cache = otter.Must(&otter.Options[law.Cell, *refusal]{MaximumSize: maxKeys})
	return s
}

// now returns microseconds on a monotonic clock, above 0.
func (s *Store) now() int64 { return 1 + sched.Since(s.startTime).Microseconds() }

// Repeated returns how many charges were refused without calling the store.
func (s *Store) Repeated() (n int64) {
	for i := range s.counters {
		n += s.counters[i].n.Load()
	}
	return n
}

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if r, ok := s.cache.GetIfPresent(cell); ok && p.Capacity-cost == r.maxLevel && !s.closed.Load() &&
		ctx.Err() == nil && r.params == *p {
		if age, ok := s.holds(r); ok {
			s.countRepeat(r)
			st := &r.out.State
			return store.Brief{
				Via: law.ViaLocal, Used: r.out.Used, Clock: r.out.Clock + age, At: max(r.out.Clock+age, st.At),
				RetryAt: r.out.RetryAt,
				EmptyAt: max(st.EmptyAt, st.BlockedUntil), Blocked: st.BlockedUntil > r.out.Clock+age,
			}, true
		}
	}
	return s.Inner.TakeOne(ctx, cell, p, cost)
}

// holds reports whether a refusal still holds, and returns its age in microseconds.
func (s *Store) holds(r *refusal) (age int64, ok bool) {
	now, exact := s.clock.Read()
	if !exact && (now < r.receivedAt || now > r.until-coarse.Lag) {
		now = s.now() // near the end, the clock that lags is not enough
	}
	return now - r.receivedAt, now < r.until
}

func (s *Store) countRepeat(r *refusal) {
	s.counters[uint64(r.receivedAt)%uint64(len(s.counters))].n.Add(1)
}

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	if len(ops) == 1 {
		if r := s.justEnded(&ops[0]); r != nil {
			// One caller calls the store for all: mostly it takes what is free, or gets another refusal.
			if r.claimed.CompareAndSwap(false, true) {
				defer close(r.refreshed)
			} else if !sched.Either(r.refreshed, ctx.Done()) {
				return ctx.Err()
			}
		}
	}
	var buf [8]uint32
	dropsBefore := s.dropCountsOf(ops, buf[:0]) // before the store is called
	if skip := s.repeatRefusals(ops, outs); skip == nil {
		err := s.Inner.Apply(ctx, ops, outs)
		s.cacheOutcomes(ops, outs, dropsBefore, err)
		if err != nil {
			store.Void(outs)
		}
		return err
	} else if len(skip) < len(ops) {
		s.applyRest(ctx, ops, outs, skip, dropsBefore)
	}
	return nil
}

// applyRest applies the ops that are not in skip. The others have outcomes, so an error is that of the rest only.
func (s *Store) applyRest(ctx context.Context, ops []law.Op, outs []law.Outcome, skip []int, dropsBefore []uint32) {
	rest, index := wrap.Rest(ops, skip)
	answers, restDrops := make([]law.Outcome, len(rest)), make([]uint32, len(rest))
	for k, i := range index {
		restDrops[k] = dropsBefore[i]
	}
	err := s.Inner.Apply(ctx, rest, answers)
	s.cacheOutcomes(rest, answers, restDrops, err)
	wrap.Join(outs, answers, index, err)
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.cache.InvalidateAll()
	return s.Inner.Close()
}
