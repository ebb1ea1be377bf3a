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

// Parallel is a Store that works best with several batches under way at once.
type Parallel interface {
	// Parallel returns how many batches may be under way at once.
	Parallel() int
}

// Local is a Store that answers out of the memory of this process: it never waits,
// so its callers need no deadline.
type Local interface {
	// Local does nothing.
	Local()
}
