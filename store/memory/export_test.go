package memory

// Limits returns how many limits the store knows.
func (s *Store) Limits() int {
	s.known.Lock()
	defer s.known.Unlock()
	return len(s.byName)
}
