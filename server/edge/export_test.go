package edge

// AllQuiet reports whether the server knows of no request under way.
func (s *Server) AllQuiet() bool {
	c := s.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) == c.quiet.Len()
}
