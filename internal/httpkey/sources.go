package httpkey

import (
	"errors"
	"strconv"

	"github.com/headgate/headgate/law"
)

// The functions of this file are those that make one source of keys of others. K is the type of a source, and
// R that of what it reads, such as a request of HTTP or a call of gRPC. An error that is a
// [*law.InvalidError] is the client's.

// Single returns the value of a field that has to be there once, and not be empty. Other fields are an error of the
// client's.
func Single(field string, values []string) (string, error) {
	switch {
	case len(values) > 1:
		return "", &severalError{law.Invalid(field, "is there %d times", len(values))}
	case len(values) == 0 || values[0] == "":
		return "", law.Invalid(field, "is missing")
	}
	return values[0], nil
}

// severalError reports a value that is present several times. FirstOf does not go on to the next source then, because
// the handler may use one of the values.
type severalError struct{ error }

func (e *severalError) Unwrap() error { return e.error }

// FirstOf returns a source of the first key that can be had, with the number of its source before it. An error
// that is not the client's ends the search, and so does a value that is present several times.
func FirstOf[K ~func(R) (string, error), R any](keys []K) K {
	return func(r R) (key string, err error) {
		err = law.Invalid("key", "there is no source of one")
		for i, by := range keys {
			if key, err = by(r); err == nil {
				return Join(strconv.Itoa(i), key), nil
			}
			if _, several := errors.AsType[*severalError](err); several || !Clients(err) {
				break
			}
		}
		return "", err
	}
}

// JoinKeys returns a source of the combination of several keys.
func JoinKeys[K ~func(R) (string, error), R any](keys []K) K {
	return func(r R) (string, error) {
		parts := make([]string, len(keys))
		for i, by := range keys {
			var err error
			if parts[i], err = by(r); err != nil {
				return "", err
			}
		}
		return Join(parts...), nil
	}
}

// Clients reports whether the error of a source is the client's.
func Clients(err error) bool {
	_, ok := errors.AsType[*law.InvalidError](err)
	return ok
}
