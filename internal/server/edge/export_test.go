package edge

import "time"

// WaitForHeaders sets how long a server waits for a header. It must be called before the server serves.
func (s *Server) WaitForHeaders(timeout time.Duration) { s.ReadHeaderTimeout = timeout }

// Open returns how many connections are open.
func (s *Server) Open() int {
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
