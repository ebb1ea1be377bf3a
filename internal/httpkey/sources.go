package httpkey

import (
	"errors"
	"strconv"

	"github.com/headgate/headgate/law"
)

// A source is a function that returns the key of a request. In this file, K is the type of a source, and R the type
// of its request, over HTTP or gRPC. An error that is a [*law.InvalidError] is the client's.

// Single returns the value of a field. It is an error of the client's if the field is missing, empty, or there several
// times.
func Single(field string, values []string) (string, error) {
	switch {
	case len(values) > 1:
		return "", &severalError{law.Invalid(field, "is there %d times", len(values))}
	case len(values) == 0 || values[0] == "":
		return "", law.Invalid(field, "is missing")
	}
	return values[0], nil
}

// severalError reports a repeated value. FirstOf does not go on to the next source then, because the handler may use
// one of the values.
type severalError struct{ error }

func (e *severalError) Unwrap() error { return e.error }

// FirstOf returns a source that tries several sources in order. The index of the source is put before the key. An error
// that is not the client's ends the search, and so does a repeated value.
func FirstOf[K ~func(R) (string, error), R any](keys []K) K {
	return func(r R) (key string, err error) {
		err = law.Invalid("key", "there is no source of one")
		for i, source := range keys {
			if key, err = source(r); err == nil {
				return Join(strconv.Itoa(i), key), nil
			}
			if _, several := errors.AsType[*severalError](err); several || !IsClientError(err) {
				break
			}
		}
		return "", err
	}
}

// JoinKeys returns a source that combines the keys of several sources.
func JoinKeys[K ~func(R) (string, error), R any](keys []K) K {
	return func(r R) (string, error) {
		parts := make([]string, len(keys))
		for i, source := range keys {
			var err error
			if parts[i], err = source(r); err != nil {
				return "", err
			}
		}
		return Join(parts...), nil
	}
}

// IsClientError reports whether the error of a source is the client's.
func IsClientError(err error) bool {
	_, ok := errors.AsType[*law.InvalidError](err)
	return ok
}
