package edge

import "time"

// WaitForHeaders sets how long a server waits for a header, before it serves.
func (s *Server) WaitForHeaders(timeout time.Duration) { s.ReadHeaderTimeout = timeout }

// Open returns how many connections are open.
func (s *Server) Open() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return s.connections.open
}

// AllQuiet reports whether no connection has a request under way.
func (s *Server) AllQuiet() bool {
	c := s.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == c.quiet.Len()
}
