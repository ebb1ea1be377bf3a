// Package deny repeats refusals without calling the store.
//
// A refusal names the earliest time at which the same cost can pass: whatever
// others do, not before. Until then, and for at most a second at a time, it is
// repeated from memory. That never admits more; after a reset or a return on
// another node it may refuse for up to that second too long.
//
// Limits that keep a history want every attempt in the store, and what is held
// may be released before its time, so theirs are never repeated; nor are ops with
// an ID or a test time. A refusal of a charge that leaves headroom is repeated to charges that
// leave as much, and not to those that leave less.
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
	// maxKeys is how many refusals are remembered, some 300 bytes each.
	maxKeys = 100_000
	// atMost is for how many microseconds one is repeated, since another process may reset the key.
	atMost = 1_000_000
)

// Store is a store in front of another. It is safe for concurrent use and
// starts no goroutine but that of a coarse.Clock.
type Store struct {
	wrap.Inner
	cache  *otter.Cache[law.Cell, *refusal]
	clock  coarse.Clock
	born   time.Time
	closed atomic.Bool

	seed  maphash.Seed
	drops [256]atomic.Uint32 // how often a cell of this hash was dropped
	// By the store's clock, when a charge of a cell of this hash was granted last.
	grants [256]atomic.Int64
	local  [16]counter
}

// counter has a cache line of its own.
type counter struct {
	n atomic.Int64
	_ [56]byte
}

// refusal is a store's refusal of a cell.
type refusal struct {
	params law.Params
	room   int64       // of the op that was refused
	out    law.Outcome // of it
	heard  int64       // when the answer came, by Store.now
	until  int64       // by Store.now

	asked    atomic.Bool   // by the first who came after it had ended
	answered chan struct{} // closed when that one knows
}

// New returns a store in front of inner, which Close closes too.
func New(inner store.Store) *Store {
	s := &Store{Inner: wrap.Around(inner), seed: maphash.MakeSeed(), born: sched.Now()}
	s.clock.Source = s.now
	s.cache = otter.Must(&otter.Options[law.Cell, *refusal]{MaximumSize: maxKeys})
	return s
}

// now returns microseconds on a clock that is never set, above 0.
func (s *Store) now() int64 { return 1 + sched.Since(s.born).Microseconds() }

// Repeated returns how many charges were refused without calling the store:
// for metrics.
func (s *Store) Repeated() (n int64) {
	for i := range s.local {
		n += s.local[i].n.Load()
	}
	return n
}

// TakeOne implements store.OneTaker.
func (s *Store) TakeOne(ctx context.Context, cell law.Cell, p *law.Params, cost int64) (b store.Brief, decided bool) {
	if r, ok := s.cache.GetIfPresent(cell); ok && p.Capacity-cost == r.room && !s.closed.Load() &&
		ctx.Err() == nil && r.params == *p {
		if gone, ok := s.holds(r); ok {
			s.count(r)
			st := &r.out.State
			return store.Brief{
				Via: law.ViaLocal, Used: r.out.Used, Clock: r.out.Clock + gone, At: max(r.out.Clock+gone, st.At),
				RetryAt: r.out.RetryAt,
				EmptyAt: max(st.EmptyAt, st.BlockedUntil), Blocked: st.BlockedUntil > r.out.Clock+gone,
			}, true
		}
	}
	return s.Inner.TakeOne(ctx, cell, p, cost)
}

// holds reports whether a refusal still stands, and how many microseconds ago
// it came.
func (s *Store) holds(r *refusal) (gone int64, ok bool) {
	now, exact := s.clock.Read()
	if !exact && (now < r.heard || now > r.until-coarse.Lag) {
		now = s.now() // it may be over
	}
	return now - r.heard, now < r.until
}

func (s *Store) count(r *refusal) { s.local[uint64(r.heard)%uint64(len(s.local))].n.Add(1) }

// Apply implements store.Store.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.closed.Load() {
		return store.ErrClosed
	}
	if len(ops) == 1 {
		if r := s.over(&ops[0]); r != nil {
			// One asks for all: mostly it gets the last, or another refusal.
			if r.asked.CompareAndSwap(false, true) {
				defer close(r.answered)
			} else if !sched.Either(r.answered, ctx.Done()) {
				return ctx.Err()
			}
		}
	}
	var buf [8]uint32
	seen := s.generations(ops, buf[:0]) // before anything is asked
	if skip := s.repeat(ops, outs); skip == nil {
		err := s.Inner.Apply(ctx, ops, outs)
		s.learn(ops, outs, seen, err)
		if err != nil {
			store.Void(outs)
		}
		return err
	} else if len(skip) < len(ops) {
		s.applyRest(ctx, ops, outs, skip, seen)
	}
	return nil
}

// applyRest asks about the ops that are not in skip. The others have their
// outcomes, so an error is that of the rest only.
func (s *Store) applyRest(ctx context.Context, ops []law.Op, outs []law.Outcome, skip []int, seen []uint32) {
	rest, index := wrap.Rest(ops, skip)
	answers, restSeen := make([]law.Outcome, len(rest)), make([]uint32, len(rest))
	for k, i := range index {
		restSeen[k] = seen[i]
	}
	err := s.Inner.Apply(ctx, rest, answers)
	s.learn(rest, answers, restSeen, err)
	wrap.Join(outs, answers, index, err)
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.closed.Store(true)
	s.cache.InvalidateAll()
	return s.Inner.Close()
}
