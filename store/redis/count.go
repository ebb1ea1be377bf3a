package redis

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/headgate/headgate/internal/pause"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store/internal/overflow"
)

// A count reads the names of all cells, 1,000 at a time. One that takes no longer than
// cheapCount is made whenever it is asked for. A longer one waits until so many times as
// long has passed since anybody counted: at a sweep, or early, when a limit may have
// become full.
const (
	cheapCount = 50 * time.Millisecond
	sweepPause = 20
	earlyPause = 5
	mostCounts = 4 // in a row, while more keys come than are counted

	// Between questions in the background, so many times as long as one took passes, but
	// no more than this.
	askingPause  = 9
	longestPause = 500 * time.Millisecond
)

// counter counts the keys of limits that have a maximum. The server itself knows how
// many cells were made, so it tells when a limit cannot be full, without a count.
type counter struct {
	shared overflow.Counts
	every  atomic.Int64  // after how many charges of such cells the server is asked; 0: no limit has a maximum
	seen   atomic.Int64  // of those, since it was asked
	asking atomic.Bool   // the server, in the background
	turn   chan struct{} // holds one while somebody counts
	// What was logged, for who holds turn.
	warned  int64 // of this maximum, which is not that of the configuration
	sharing map[string]bool
}

// often returns every for a maximum: a fiftieth of it.
func often(most int64) int64 { return max(1, most/50) }

// saw lets the server be asked whether a limit is full, when there were many charges
// of cells that seem new.
func (s *Store) saw(ops []law.Op, outs []law.Outcome) {
	every, seen := s.counter.every.Load(), int64(0)
	for i := range ops {
		op, out := &ops[i], &outs[i]
		if own := op.Params.MaxKeys; own > 0 && (every == 0 || often(own) < every) {
			every = often(own)
			s.counter.every.Store(every)
		}
		if every > 0 && op.Verb == law.Take && out.Granted > 0 && !out.Shared && out.Used == op.Cost*out.Granted {
			seen++
		}
	}
	if seen > 0 && s.counter.seen.Add(seen) >= every {
		s.counter.seen.Store(0)
		s.countSoon(true)
	}
}

// countSoon counts in the background, unless that is under way.
func (s *Store) countSoon(early bool) {
	if s.counter.asking.Swap(true) {
		return
	}
	go func() {
		defer s.counter.asking.Store(false)
		ctx, cancel := context.WithTimeout(s.life, time.Minute)
		defer cancel()
		begin := time.Now() //nolint:forbidigo // a pause, not a decision
		defer func() { _ = pause.Sleep(s.life, min(askingPause*time.Since(begin), longestPause)) }()
		if err := s.count(ctx, early); err != nil && ctx.Err() == nil {
			s.log.Debug("the keys of limits could not be counted", "error", err) // a sweep returns it
		}
	}()
}

// count counts keys if that is due, and lets limits begin or end to share a cell. early
// says that it is for the sake of limits that have become full.
func (s *Store) count(ctx context.Context, early bool) error {
	select {
	case s.counter.turn <- struct{}{}:
		defer func() { <-s.counter.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for range mostCounts {
		r, err := s.readRooms(ctx)
		if err != nil {
			return err
		}
		if err := s.declareAgain(ctx, r); err != nil {
			return err
		}
		s.counter.every.Store(r.every())
		s.warnOfOther(r.max)
		s.tellChanges(r)
		if !r.due(early) {
			return nil
		}
		keys := map[string]int64{}
		if r.bounded() {
			if err := s.pages(ctx, func(page []string) error { s.tally(page, keys); return nil }); err != nil {
				return asking("count keys", err)
			}
		}
		if err := s.takeDown(ctx, r, keys); err != nil {
			return err
		}
		early = true // again only if more keys have come meanwhile than there is room for
	}
	return nil
}

// tally counts the keys of a page by their limit. Shared cells are no keys.
func (s *Store) tally(page []string, keys map[string]int64) {
	for _, key := range page {
		c, ok := s.cellOf(key)
		if !ok || law.IsShared(c) {
			continue
		}
		if _, known := keys[c.Limit]; !known {
			c.Limit = strings.Clone(c.Limit)
		}
		keys[c.Limit]++
	}
}

// every returns counter.every.
func (r *rooms) every() int64 {
	every := int64(0)
	if r.max > 0 {
		every = often(r.max)
	}
	for _, l := range r.limits {
		if l.own > 0 && (every == 0 || often(l.own) < every) {
			every = often(l.own)
		}
	}
	return every
}

// bounded tells whether a limit has a maximum. Without one there is nothing to count.
func (r *rooms) bounded() bool { return r.every() > 0 }

// due tells whether it is time to count. Early it is only where a limit may have become
// full; at a sweep it is so at once.
func (r *rooms) due(early bool) bool {
	full, beyond := false, false
	for _, l := range r.limits {
		if most := r.most(l); most > 0 && l.generation == 0 {
			full = full || l.atMost() >= most
			beyond = beyond || l.atMost() >= most+most/10
		}
	}
	cheap := r.took <= cheapCount.Microseconds() && (r.max > 0 || len(r.limits) > 0)
	if early {
		return beyond || full && (cheap || r.now-r.at >= earlyPause*r.took)
	}
	return full || cheap || r.took > 0 && r.now-r.at >= sweepPause*r.took
}

// warnOfOther says once that the maximum of the store is not that of the configuration.
// The holder of turn calls it.
func (s *Store) warnOfOther(most int64) {
	mine := max(0, int64(s.cfg.MaxKeys))
	if s.cfg.MaxKeys == 0 {
		return
	}
	if most != mine && most != s.counter.warned {
		s.log.Warn("another process has set how many keys a limit may have, for all", "here", mine, "now", most)
	}
	s.counter.warned = most
}

// tellChanges logs which limits have begun or ended to share a cell since it last looked.
// The holder of turn calls it.
func (s *Store) tellChanges(r *rooms) {
	was := s.counter.sharing
	s.counter.sharing = map[string]bool{}
	for name, l := range r.limits {
		if l.generation == 0 {
			continue
		}
		s.counter.sharing[name] = true
		if !was[name] {
			s.log.Warn("a limit has as many keys as it may: new ones share one cell", "limit", name, "keys", l.keys,
				"max", r.most(l))
		}
		delete(was, name)
	}
	for name := range was {
		s.log.Info("a limit has room for new keys again", "limit", name)
	}
}

// noHead is in the place of the doubles that head.lua reads.
var noHead = string(make([]byte, headSize))

// perCall is how many limits a call of count.lua is about: it takes less than 2 ms.
const perCall = 200

// takeDown writes down what was counted, of limits that are not far from full or were
// written down before, and lets them begin or end to share a cell.
func (s *Store) takeDown(ctx context.Context, r *rooms, keys map[string]int64) error {
	for name, n := range keys {
		if r.limits[name] == nil && r.max > 0 && n >= r.max/100 {
			r.limits[name] = &limitRoom{}
		}
	}
	for names := range slices.Chunk(append(slices.Sorted(maps.Keys(r.limits)), ""), perCall) {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
		c := &call{
			script: countScript, keys: []string{s.roomKey()},
			args: []string{noHead, strconv.FormatInt(r.now, 10)},
		}
		for _, name := range names {
			l, shared := r.limits[name], s.roomKey()
			if l.generation > 0 {
				shared = s.cellKey(law.SharedCell(name, l.generation))
			}
			c.keys = append(c.keys, shared)
			c.args = append(c.args, name, strconv.FormatInt(keys[name], 10), strconv.FormatInt(l.made, 10),
				strconv.FormatInt(l.generation, 10))
		}
		if err := s.send(ctx, []*call{c})[0].Error(); err != nil && !rueidis.IsRedisNil(err) {
			return asking("write down how many keys limits have", err)
		}
	}
	return nil
}
