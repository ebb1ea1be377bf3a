package memory

import "github.com/headgate/headgate/law"

// Limits returns how many limits the store knows.
func (s *Store) Limits() int {
	s.known.Lock()
	defer s.known.Unlock()
	return len(s.byName)
}

// SameTable reports whether two cells lie in one table, whose lock requests for either of them take.
func (s *Store) SameTable(a, b law.Cell) bool { return s.tableOf(s.hash(&a)) == s.tableOf(s.hash(&b)) }
