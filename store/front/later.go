package front

import (
	"context"

	"github.com/headgate/headgate/internal/front/guard"
	"github.com/headgate/headgate/internal/front/pending"
	"github.com/headgate/headgate/store"
)

// Later returns at once, and opens the store in the background, so the store need not be reachable yet. Until it is
// open, limits are decided as while the store is away.
//
// Package guard is in front of package pending here, and the other wrappers are behind it, since they adapt themselves
// to the store. store.As finds the pending.Store, which has the error of opening.
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
	f.top, f.oneTaker = f.guard, f.guard
	f.sweeper.start(f.Sweep, &Config{SweepEvery: -1}) // the stack behind pending has a sweeper
	return f
}

// openedStack returns the stack behind the pending store of Later; nil if it is not open yet, or s is of New.
func (s *Store) openedStack() *Store {
	if s.guard == nil {
		return nil
	}
	if p, ok := s.guard.Unwrap().(*pending.Store); ok {
		f, _ := store.As[*Store](p)
		return f
	}
	return nil
}
