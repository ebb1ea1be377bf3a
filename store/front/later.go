package front

import (
	"context"

	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/store"
)

// Later returns at once, and opens the store in the background: it may not be there yet.
// Until that is done limits answer as they do while the store is away.
//
// Package guard stands in front of package pending here, and the other wrappers behind it, since they adapt
// themselves to the store. store.As finds the pending.Store, which says what came of the opening.
func Later(p pending.Config, cfg *Config) *Store {
	c := cfg.withDefaults()
	open := p.Open
	p.Open = func(ctx context.Context) (store.Store, error) {
		s, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return stack(s, &c, false), nil
	}
	f := &Store{guard: guard.New(pending.New(p), c.guard())}
	f.top, f.one = f.guard, f.guard
	f.sweeper.start(f.Sweep, &Config{SweepEvery: -1}) // the stack behind has one
	return f
}

// opened returns the stack behind a store of Later, or nil.
func (s *Store) opened() *Store {
	if s.guard == nil {
		return nil
	}
	if p, ok := s.guard.Unwrap().(*pending.Store); ok {
		f, _ := store.As[*Store](p)
		return f
	}
	return nil
}
