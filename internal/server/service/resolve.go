package service

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/store"
)

// resolver caches resolved notations, since parsing one takes longer than a decision, and counts the notations in use.
type resolver struct {
	mu        sync.RWMutex
	limits    map[string]cachedLimit // by the text in requests; guarded by mu
	notations map[string]*notation   // by canonical form; guarded by mu
	evictedAt int64                  // time of the last eviction; guarded by mu
}

// cachedLimit is a resolved limit.
type cachedLimit struct {
	limit    headgate.Limit
	notation *notation // use of the limit's notation; nil if the number of notations is not bounded
}

// notation is a notation that requests use. It is in use as long as anything that was charged under it can count.
type notation struct {
	maxPeriod  int64        // how long a charge counts at most, in microseconds
	lastUse    atomic.Int64 // time of the last use, by this machine's clock
	inUseUntil atomic.Int64 // the latest end of the blocks, ids and waits of requests with the notation
}

// Bounds of the cache of limits, which is emptied when it is full.
const (
	maxCached     = 1000 // texts
	maxCachedText = 256  // bytes of a text; a longer one is not cached
)

// useMargin is how much longer than its maxPeriod a notation stays in use, in microseconds.
const useMargin = 60_000_000

// touch records a use of the notation, at most once a second.
func (n *notation) touch() {
	if n == nil {
		return
	}
	if now := store.SystemClock(); now-n.lastUse.Load() > 1_000_000 {
		n.lastUse.Store(now)
	}
}

// expired reports whether the notation is no longer in use.
func (n *notation) expired(now int64) bool {
	return now-n.lastUse.Load() > n.maxPeriod+useMargin && now > n.inUseUntil.Load()+n.maxPeriod
}

// extendUse keeps a notation in use for a duration that a request gives in a field. It rejects a duration that is
// longer than the period of a notation may be. A named limit may have any duration.
func (s *Service) extendUse(field string, d time.Duration, l headgate.Limit) error {
	if l.Named() || d <= 0 {
		return nil
	}
	if bound := s.config.NotationBounds.MaxPeriod; bound > 0 && d > bound {
		return headgate.Invalid(field, "is longer than a notation in a request may count, %s (%s)", bound,
			config.NotationMaxPeriod.Name)
	}
	s.resolver.mu.RLock()
	n := s.resolver.notations[l.Name()]
	s.resolver.mu.RUnlock()
	if n == nil {
		return nil
	}
	until := store.SystemClock() + d.Microseconds()
	for at := n.inUseUntil.Load(); at < until && !n.inUseUntil.CompareAndSwap(at, until); at = n.inUseUntil.Load() {
	}
	return nil
}

// extendUses calls extendUse for the limit of each charge.
func (s *Service) extendUses(field string, d time.Duration, charges []headgate.Charge) error {
	for i := range charges {
		if err := s.extendUse(field, d, charges[i].Limit); err != nil {
			return err
		}
	}
	return nil
}

// limitOfCell returns the limit of a cell that a request names, if the caller may use the limit. It rejects a request
// without a key, since all callers who forget theirs would share a cell; an empty key is valid.
func (s *Service) limitOfCell(ctx context.Context, nameOrNotation string, noKey bool) (headgate.Limit, error) {
	switch {
	case nameOrNotation == "":
		return headgate.Limit{}, headgate.Invalid("limit", "is missing")
	case noKey:
		return headgate.Limit{}, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	return s.permittedLimit(ctx, nameOrNotation)
}

// permittedLimit returns a limit that the caller may use. The caller's patterns are compared with the name, or with the
// canonical notation. Limits that do not exist are forbidden too, so that nobody learns which limits exist.
func (s *Service) permittedLimit(ctx context.Context, nameOrNotation string) (headgate.Limit, error) {
	if caller := auth.CallerOf(ctx); !caller.AllLimits() {
		if forbidden := s.checkLimit(caller, s.nameOf(nameOrNotation)); forbidden != nil {
			return headgate.Limit{}, forbidden // without putting a notation in use
		}
	}
	return s.resolve(nameOrNotation)
}

// nameOf returns the name or canonical notation of a limit, or the text itself if it is no limit.
func (s *Service) nameOf(nameOrNotation string) string {
	s.resolver.mu.RLock()
	r, ok := s.resolver.limits[nameOrNotation]
	s.resolver.mu.RUnlock()
	if ok {
		return r.limit.Name()
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil {
		return nameOrNotation
	}
	return cmp.Or(l.Name(), nameOrNotation)
}

// existingLimit returns a limit that the caller may use, and fails if it is a name that does not exist. A limit that
// was renamed has its first name here, which the cells have.
func (s *Service) existingLimit(ctx context.Context, nameOrNotation string) (headgate.Limit, error) {
	l, err := s.permittedLimit(ctx, nameOrNotation)
	if err == nil && l.OnlyName() {
		found, missing := s.names.Find(ctx, l.Name(), "")
		if missing != nil {
			return l, missing
		}
		return headgate.Named(found.Name())
	}
	return l, err
}

// resolve returns the limit of a text, and puts a notation in use. It caches notations but not names, whose limit may
// change at any time and differ by key: the limiter looks names up.
func (s *Service) resolve(nameOrNotation string) (headgate.Limit, error) {
	s.resolver.mu.RLock()
	r, ok := s.resolver.limits[nameOrNotation]
	s.resolver.mu.RUnlock()
	if ok {
		r.notation.touch()
		return r.limit, nil
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil || l.OnlyName() {
		return l, err
	}
	s.resolver.mu.Lock()
	defer s.resolver.mu.Unlock()
	r = cachedLimit{limit: l}
	if r.notation, err = s.resolver.use(l, s.config.NotationBounds.Max, store.SystemClock()); err != nil {
		return headgate.Limit{}, err
	}
	if len(nameOrNotation) > maxCachedText {
		return l, nil
	}
	if len(s.resolver.limits) >= maxCached {
		clear(s.resolver.limits)
	}
	s.resolver.limits[nameOrNotation] = r
	return l, nil
}

// use puts a notation in use, and fails if maxNotations others are; 0: no bound. The caller holds mu.
func (rs *resolver) use(l headgate.Limit, maxNotations int, now int64) (*notation, error) {
	if maxNotations == 0 {
		return nil, nil
	}
	n := rs.notations[l.Name()]
	if n == nil {
		if len(rs.notations) >= maxNotations && now-rs.evictedAt > 1_000_000 {
			rs.evict(now)
		}
		if len(rs.notations) >= maxNotations {
			return nil, headgate.Invalid("limit", "%d different notations are in use, as many as may be at a time (%s)",
				maxNotations, config.MaxNotations.Name)
		}
		p := l.Params()
		// HealAfter of a sliding window is two windows.
		n = &notation{maxPeriod: max(config.LongestPeriod(l).Microseconds(), p.HealAfter())}
		rs.notations[l.Name()] = n
	}
	n.lastUse.Store(now)
	return n, nil
}

// cachedLimits returns the limits in the cache, each once, sorted by name.
func (rs *resolver) cachedLimits() (limits []headgate.Limit) {
	rs.mu.RLock()
	for _, r := range rs.limits {
		limits = append(limits, r.limit)
	}
	rs.mu.RUnlock()
	byName := func(a, b headgate.Limit) int { return cmp.Compare(a.Name(), b.Name()) }
	slices.SortFunc(limits, byName)
	return slices.CompactFunc(limits, func(a, b headgate.Limit) bool { return byName(a, b) == 0 })
}

// evict removes the notations that are no longer in use, also from the cache. The caller holds mu.
func (rs *resolver) evict(now int64) {
	rs.evictedAt = now
	maps.DeleteFunc(rs.notations, func(_ string, n *notation) bool { return n.expired(now) })
	maps.DeleteFunc(rs.limits, func(_ string, c cachedLimit) bool {
		return c.notation != nil && c.notation.expired(now)
	})
}

// KnownLimits returns the limits of charges, in their order. A limit is zero if this process knows only its name.
func (s *Service) KnownLimits(charges []headgate.Charge) []headgate.Limit {
	limits := make([]headgate.Limit, len(charges))
	known, _ := s.names.(interface {
		Known(name, key string) (headgate.Limit, bool)
	})
	for i := range charges {
		switch l := charges[i].Limit; {
		case !l.OnlyName():
			limits[i] = l
		case known != nil:
			limits[i], _ = known.Known(l.Name(), charges[i].Key)
		}
	}
	return limits
}
