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

// known are notations that were resolved before: to parse one takes longer
// than to decide.
type known struct {
	mu        sync.RWMutex
	limits    map[string]resolved  // by what requests say; guarded by mu
	notations map[string]*notation // by their canonical form; guarded by mu
	searched  int64                // when those were looked for that are in use no more; guarded by mu
}

type resolved struct {
	limit headgate.Limit
	used  *notation // nil where any number may be in use
}

// notation is one that requests use. It is in use until nothing that was charged by it
// can count any more.
type notation struct {
	longest int64        // microseconds
	used    atomic.Int64 // when it was last used, by this machine's clock
	until   atomic.Int64 // something that was said beside it, such as a block, counts until then
}

// maxKnown is how many are remembered before it starts over, and maxLine how
// long they may be.
const (
	maxKnown = 1000
	maxLine  = 256
)

// leastUse is how long a notation is in use at least, in microseconds.
const leastUse = 60_000_000

// touch notes that it was used, once in a second at most.
func (n *notation) touch() {
	if n == nil {
		return
	}
	if now := store.SystemClock(); now-n.used.Load() > 1_000_000 {
		n.used.Store(now)
	}
}

func (n *notation) over(now int64) bool {
	return now-n.used.Load() > n.longest+leastUse && now > n.until.Load()+n.longest
}

// beside checks a length of time that a request says beside a notation, for which it is to
// count: as long as a notation itself may say. The notation is in use until then.
func (s *Service) beside(field string, d time.Duration, l headgate.Limit) error {
	if l.Named() || d <= 0 {
		return nil
	}
	if most := s.config.Notations.MaxPeriod; most > 0 && d > most {
		return headgate.Invalid(field, "is longer than a notation in a request may count, %s (%s)", most,
			config.NotationMaxPeriod.Name)
	}
	s.known.mu.RLock()
	n := s.known.notations[l.Name()]
	s.known.mu.RUnlock()
	if n == nil {
		return nil
	}
	until := store.SystemClock() + d.Microseconds()
	for at := n.until.Load(); at < until && !n.until.CompareAndSwap(at, until); at = n.until.Load() {
	}
	return nil
}

// besideAll checks a length of time, such as the life of an id, against each charge.
func (s *Service) besideAll(field string, d time.Duration, charges []headgate.Charge) error {
	for i := range charges {
		if err := s.beside(field, d, charges[i].Limit); err != nil {
			return err
		}
	}
	return nil
}

// cell returns the limit of a cell that a request names. Without a key, all who forget
// theirs would share one; an empty key is one that somebody chose. The caller must be one that
// may touch the limit.
func (s *Service) cell(ctx context.Context, nameOrNotation string, noKey bool) (headgate.Limit, error) {
	switch {
	case nameOrNotation == "":
		return headgate.Limit{}, headgate.Invalid("limit", "is missing")
	case noKey:
		return headgate.Limit{}, headgate.Invalid("key", "is missing; it may be empty, but it must be there")
	}
	return s.touch(ctx, nameOrNotation)
}

// touch returns a limit that the caller may touch. A pattern of limits is compared with the name, or
// with the notation as it is written in answers. Limits that do not exist are forbidden too,
// so that nobody learns which there are.
func (s *Service) touch(ctx context.Context, nameOrNotation string) (headgate.Limit, error) {
	if caller := auth.From(ctx); !caller.All() {
		if forbidden := caller.Touches(s.nameOf(nameOrNotation)); forbidden != nil {
			return headgate.Limit{}, forbidden // and no notation is in use by it
		}
	}
	return s.resolve(nameOrNotation)
}

// nameOf returns what a pattern of limits is compared with. Of what is no limit it is the text itself.
func (s *Service) nameOf(nameOrNotation string) string {
	s.known.mu.RLock()
	r, ok := s.known.limits[nameOrNotation]
	s.known.mu.RUnlock()
	if ok {
		return r.limit.Name()
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil {
		return nameOrNotation
	}
	return cmp.Or(l.Name(), nameOrNotation)
}

// existing refuses a limit that does not exist.
func (s *Service) existing(ctx context.Context, nameOrNotation string) (headgate.Limit, error) {
	l, err := s.touch(ctx, nameOrNotation)
	if err == nil && l.OnlyName() {
		_, err = s.names.Find(ctx, l.Name(), "")
	}
	return l, err
}

// resolve remembers what config.Resolve returned. The meaning of a name may change at any time, and differ
// by key: the limiter finds it.
func (s *Service) resolve(nameOrNotation string) (headgate.Limit, error) {
	s.known.mu.RLock()
	r, ok := s.known.limits[nameOrNotation]
	s.known.mu.RUnlock()
	if ok {
		r.used.touch()
		return r.limit, nil
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil || l.OnlyName() {
		return l, err
	}
	s.known.mu.Lock()
	defer s.known.mu.Unlock()
	r = resolved{limit: l}
	if r.used, err = s.known.use(l, s.config.Notations.Max, store.SystemClock()); err != nil {
		return headgate.Limit{}, err
	}
	if len(nameOrNotation) > maxLine {
		return l, nil
	}
	if len(s.known.limits) >= maxKnown {
		clear(s.known.limits)
	}
	s.known.limits[nameOrNotation] = r
	return l, nil
}

// use notes that a notation is in use, unless as many are as may be; 0 is any number.
// The caller holds mu.
func (k *known) use(l headgate.Limit, most int, now int64) (*notation, error) {
	if most == 0 {
		return nil, nil
	}
	n := k.notations[l.Name()]
	if n == nil {
		if len(k.notations) >= most && now-k.searched > 1_000_000 {
			k.forget(now)
		}
		if len(k.notations) >= most {
			return nil, headgate.Invalid("limit", "%d different notations are in use, as many as may be at a time (%s)",
				most, config.MaxNotations.Name)
		}
		p := l.Params()
		// which is two windows of a sliding one
		n = &notation{longest: max(config.Longest(l).Microseconds(), p.HealAfter())}
		k.notations[l.Name()] = n
	}
	n.used.Store(now)
	return n, nil
}

// used returns the notations that were resolved before, ordered.
func (k *known) used() (limits []headgate.Limit) {
	k.mu.RLock()
	for _, r := range k.limits {
		limits = append(limits, r.limit)
	}
	k.mu.RUnlock()
	byName := func(a, b headgate.Limit) int { return cmp.Compare(a.Name(), b.Name()) }
	slices.SortFunc(limits, byName)
	return slices.CompactFunc(limits, func(a, b headgate.Limit) bool { return byName(a, b) == 0 })
}

// forget forgets the notations that are in use no more.
func (k *known) forget(now int64) {
	k.searched = now
	maps.DeleteFunc(k.notations, func(_ string, n *notation) bool { return n.over(now) })
	maps.DeleteFunc(k.limits, func(_ string, r resolved) bool { return r.used != nil && r.used.over(now) })
}

// Limited returns the limits of charges, in their order. Those of which only the name is known here,
// without the store, are zero.
func (s *Service) Limited(charges []headgate.Charge) []headgate.Limit {
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
