package edge

import "time"

// WaitForHeaders has the server, which does not serve yet, wait so long for a header.
func (s *Server) WaitForHeaders(patience time.Duration) { s.ReadHeaderTimeout = patience }

// Open returns how many connections there are.
func (s *Server) Open() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return s.connections.open
}

// AllQuiet reports whether the server knows of no request under way.
func (s *Server) AllQuiet() bool {
	c := s.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == c.quiet.Len()
}
