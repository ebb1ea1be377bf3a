package edge

// AllQuiet reports whether the server knows of no request under way.
func (s *Server) AllQuiet() bool {
	c := s.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for h := c.quiet.first; h != nil; h = h.behind {
		n++
	}
	return c.open == n
}
