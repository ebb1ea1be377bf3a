package redis

import "time"

// ExpireSoon lets cells expire so long after they are empty: the clock of the server
// must not step back then.
func (s *Store) ExpireSoon(after time.Duration) { s.slack = after }
