package store

// Unwrapper is a Store in front of another.
type Unwrapper interface {
	// Unwrap returns the store below.
	Unwrap() Store
}

// As returns the first T among s and the stores behind it. T is an interface such as Inspector, or a driver's type.
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
