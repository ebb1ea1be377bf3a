package store

// Unwrapper is a Store in front of another.
type Unwrapper interface {
	// Unwrap returns the store below.
	Unwrap() Store
}

// As returns the first of a store and those behind it that is a T: an
// Inspector, a Migrator, a driver.
func As[T any](s Store) (t T, ok bool) {
	for s != nil {
		if t, ok = s.(T); ok {
			return t, true
		}
		u, wraps := s.(Unwrapper)
		if !wraps {
			break
		}
		s = u.Unwrap()
	}
	return t, false
}
