package memory

// Limits returns how many limits the store knows.
func (s *Store) Limits() int {
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	return len(s.byName)
}
