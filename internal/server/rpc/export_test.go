package rpc

// Arriving returns how many calls wait for their messages.
func (s *Server) Arriving() int {
	s.arriving.mu.Lock()
	defer s.arriving.mu.Unlock()
	return s.arriving.calls.Len()
}
