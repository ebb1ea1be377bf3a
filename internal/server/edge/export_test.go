package edge

import "time"

// SetReadHeaderTimeout sets how long a header may take. It must be called before the server serves.
func (s *Server) SetReadHeaderTimeout(timeout time.Duration) { s.ReadHeaderTimeout = timeout }

// OpenCount returns how many connections are open.
func (s *Server) OpenCount() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return s.connections.open
}

// AllIdle reports whether no connection has a request in flight.
func (s *Server) AllIdle() bool {
	c := s.connections
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open == c.idle.Len()
}
