package memory

// CountLimits returns how many limits the store knows.
func (s *Store) CountLimits() int {
	s.limitsMu.Lock()
	defer s.limitsMu.Unlock()
	return len(s.byName)
}
