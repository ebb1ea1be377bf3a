package rpc

// Arriving returns how many calls wait for a message.
func (s *Server) Arriving() int {
	s.arriving.mu.Lock()
	defer s.arriving.mu.Unlock()
	return s.arriving.calls.Len()
}
