package service

import (
	"sync"

	"github.com/headgate/headgate"
)

// known are limits that were resolved before: to parse a notation takes longer
// than to decide.
type known struct {
	mu     sync.RWMutex
	limits map[string]headgate.Limit // guarded by mu
}

// maxKnown is how many are remembered before it starts anew, and maxLine how
// long they may be.
const (
	maxKnown = 1000
	maxLine  = 256
)

// cell returns the limit of a cell that a request names. Without a key, all who forget
// theirs would share one; an empty key is one that somebody chose.
func (s *Service) cell(nameOrNotation string, noKey bool) (headgate.Limit, error) {
	switch {
	case nameOrNotation == "":
		return headgate.Limit{}, Invalid("limit", "is missing")
	case noKey:
		return headgate.Limit{}, Invalid("key", "is missing; it may be empty, but it must be there")
	}
	return s.resolve(nameOrNotation)
}

// resolve is config.Resolve with a memory.
func (s *Service) resolve(nameOrNotation string) (headgate.Limit, error) {
	s.known.mu.RLock()
	l, ok := s.known.limits[nameOrNotation]
	s.known.mu.RUnlock()
	if ok {
		return l, nil
	}
	l, err := s.config.Resolve(nameOrNotation)
	if err != nil || len(nameOrNotation) > maxLine {
		return l, err
	}
	s.known.mu.Lock()
	if len(s.known.limits) >= maxKnown || s.known.limits == nil {
		s.known.limits = map[string]headgate.Limit{}
	}
	s.known.limits[nameOrNotation] = l
	s.known.mu.Unlock()
	return l, nil
}
