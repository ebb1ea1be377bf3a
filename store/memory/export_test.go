package memory

import "github.com/headgate/headgate/law"

// Limits returns how many limits the store knows.
func (s *Store) Limits() int {
	s.known.Lock()
	defer s.known.Unlock()
	return len(s.byName)
}

// SameTable reports whether two cells lie in one table, so that who asks for one may wait for who asks for the other.
func (s *Store) SameTable(a, b law.Cell) bool { return s.tableOf(s.hash(&a)) == s.tableOf(s.hash(&b)) }
