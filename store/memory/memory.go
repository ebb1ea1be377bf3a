// Package memory keeps cells in this process. State ends with the process.
package memory

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

var (
	_ store.Store     = (*Store)(nil)
	_ store.Inspector = (*Store)(nil)
)

// DefaultMaxKeys is how many cells a store holds unless told otherwise.
const DefaultMaxKeys = 1_000_000

// Config adjusts a Store. A nil Config, and every zero field, is fine.
type Config struct {
	Clock   store.Clock // nil: this machine's
	MaxKeys int         // cells held at most; 0: DefaultMaxKeys, below 0: no bound
}

// Store keeps cells in maps, sharded by key. It is safe for concurrent use
// and starts no goroutine.
//
// It holds a bounded number of cells. When it is full, a new key takes the
// place of one that could refuse nobody; if there is none, its request fails
// with store.ErrFull, and nothing of it is admitted.
type Store struct {
	clock  store.Clock
	seed   maphash.Seed
	most   int // cells in each shard
	closed atomic.Bool
	number atomic.Int64 // of the last log entry
	shards [shards]shard
}

const shards = 64

type shard struct {
	mu    sync.Mutex
	cells map[law.Cell]*cell // guarded by mu
	_     [64]byte           // keeps neighbours off one cache line
}

// cell is a record with its log.
type cell struct {
	rec law.Record
	log *entries // nil until the log law is used
}

// New returns an empty store.
func New(cfg *Config) *Store {
	s := &Store{clock: store.SystemClock, seed: maphash.MakeSeed()}
	keys := DefaultMaxKeys
	if cfg != nil {
		if cfg.Clock != nil {
			s.clock = cfg.Clock
		}
		if cfg.MaxKeys != 0 {
			keys = cfg.MaxKeys
		}
	}
	s.most = math.MaxInt
	if keys > 0 {
		s.most = (keys + shards - 1) / shards
	}
	for i := range s.shards {
		s.shards[i].cells = map[law.Cell]*cell{}
	}
	return s
}

// Apply implements store.Store. Each group is atomic; the groups of a batch
// are applied in order, others may come between them.
func (s *Store) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	for i := 0; i < len(ops); {
		j := law.GroupEnd(ops, i)
		if err := law.ValidGroup(ops[i:j]); err != nil {
			fail(outs[i:j], err)
		} else if j == i+1 {
			s.applyOne(&ops[i], ops[i:j], outs[i:j])
		} else {
			s.applyGroup(ops[i:j], outs[i:j])
		}
		i = j
	}
	return nil
}

func (s *Store) ready(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	return ctx.Err()
}

func fail(outs []law.Outcome, err error) {
	for i := range outs {
		outs[i] = law.Outcome{Err: err}
	}
}

func (s *Store) shardOf(c *law.Cell) int {
	return int(maphash.Comparable(s.seed, *c) % shards)
}

// applyOne applies a group of one op under one lock.
func (s *Store) applyOne(op *law.Op, ops []law.Op, outs []law.Outcome) {
	sh := &s.shards[s.shardOf(&op.Cell)]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s.decide(ops, outs)
}

// applyGroup locks the shards of a group in order, so that groups that share
// keys wait for each other and never in a circle.
func (s *Store) applyGroup(ops []law.Op, outs []law.Outcome) {
	var locked [shards]bool
	for i := range ops {
		locked[s.shardOf(&ops[i].Cell)] = true
	}
	for i, is := range locked {
		if is {
			s.shards[i].mu.Lock()
			defer s.shards[i].mu.Unlock()
		}
	}
	s.decide(ops, outs)
}

// decide applies a valid group whose shards are locked.
func (s *Store) decide(ops []law.Op, outs []law.Outcome) {
	var buf [4]*law.Record
	records := buf[:0]
	now := s.clock()
	fresh := 0 // cells put into the maps for this group
	for i := range ops {
		c, added, err := s.cell(&ops[i].Cell, now)
		if err != nil {
			fail(outs, err)
			s.drop(ops[:i])
			return
		}
		if added {
			fresh++
		}
		if ops[i].Params.Kind == law.Log && c.log == nil {
			c.log = &entries{}
			c.rec.Log = c.log
		}
		records = append(records, &c.rec)
	}
	law.Apply(ops, outs, now, records)
	for i, r := range records {
		if n := outs[i].Entry; n > 0 {
			if r.Add[n-1].Number == 0 {
				r.Add[n-1].Number = s.number.Add(1)
			}
			outs[i].Entry = r.Add[n-1].Number
		}
	}
	for i := range ops {
		s.settle(&ops[i].Cell)
	}
	if fresh > 0 {
		s.drop(ops)
	}
}

// cell returns the cell, putting a fresh one into its shard if need be.
func (s *Store) cell(id *law.Cell, now int64) (c *cell, added bool, err error) {
	sh := &s.shards[s.shardOf(id)]
	if c, ok := sh.cells[*id]; ok {
		return c, false, nil
	}
	if len(sh.cells) >= s.most && !sh.evict(now) {
		return nil, false, fmt.Errorf("%w: %d keys are held and each could still refuse a request", store.ErrFull, len(sh.cells)*shards)
	}
	c = &cell{}
	sh.cells[*id] = c
	return c, true, nil
}

// evict removes a cell that could refuse nobody, if it meets one. It looks at
// a bounded number, in the map's random order.
func (sh *shard) evict(now int64) bool {
	looked := 0
	for id, c := range sh.cells {
		if c.dead(now) {
			delete(sh.cells, id)
			return true
		}
		if looked++; looked == 1024 {
			break
		}
	}
	return false
}

// dead reports whether the cell is as good as fresh, and remembers nothing.
func (c *cell) dead(now int64) bool {
	st := &c.rec.State
	return st.EmptyAt <= now && st.BlockedUntil <= now && (c.log == nil || c.log.forgotten(now))
}

// settle does what the law left to the store for a cell.
func (s *Store) settle(id *law.Cell) {
	c := s.shards[s.shardOf(id)].cells[*id]
	r := &c.rec
	if c.log != nil {
		if r.Clear {
			c.log.clear()
		}
		for _, l := range r.Lower {
			c.log.lower(l)
		}
		for _, e := range r.Add {
			if e.Number == 0 { // carried over from another law
				e.Number = s.number.Add(1)
			}
			c.log.add(e)
			c.log.prune(r.State.At, e.At)
		}
	}
	r.Dirty, r.Gone, r.Clear, r.Lower, r.Add = false, false, false, nil, nil
}

// drop removes the cells that stayed fresh: asked only to be checked, refused
// at first sight, or reset.
func (s *Store) drop(ops []law.Op) {
	for i := range ops {
		sh := &s.shards[s.shardOf(&ops[i].Cell)]
		if c, ok := sh.cells[ops[i].Cell]; ok && c.rec.State.Kind == 0 && (c.log == nil || len(c.log.list) == 0) {
			delete(sh.cells, ops[i].Cell)
		}
	}
}

// Sweep implements store.Store: it looks at every shard in turn, and holds no
// lock for longer than one of them takes.
func (s *Store) Sweep(ctx context.Context, max int) (removed int, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	now := s.clock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for id, c := range sh.cells {
			if removed >= max {
				break
			}
			if c.log != nil {
				removed += c.log.compact(c.rec.State.At, c.rec.State.EmptyAt, now, max-removed)
			}
			if removed < max && c.dead(now) {
				delete(sh.cells, id)
				removed++
			}
		}
		sh.mu.Unlock()
		if removed >= max || ctx.Err() != nil {
			break
		}
	}
	return removed, ctx.Err()
}

// Close implements store.Store. What was kept is forgotten.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}
