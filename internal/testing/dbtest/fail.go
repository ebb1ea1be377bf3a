package dbtest

import (
	"fmt"
	"testing"
)

// failure is what a function panics with that cannot go on. A server is had by dozens of steps, each of which may fail:
// none of the functions between them says that again.
type failure struct{ err error }

// do fails if there is an error.
func do(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// get returns a value, or fails.
func get[T any](v T, err error) T {
	do(err)
	return v
}

// rescue, deferred, has a function return the error of what has failed in it.
func rescue(err *error) {
	if r := recover(); r != nil {
		*err = caught(r)
	}
}

// fatal, deferred, ends a test in which something has failed.
func fatal(tb testing.TB) {
	tb.Helper()
	if r := recover(); r != nil {
		tb.Fatalf("dbtest: %v", caught(r))
	}
}

// about, deferred, says more of what has failed.
func about(format string, args ...any) {
	if r := recover(); r != nil {
		panic(failure{fmt.Errorf(format+": %w", append(args, caught(r))...)})
	}
}

// undo, deferred, does something if something has failed.
func undo(do func()) {
	if r := recover(); r != nil {
		do()
		panic(r)
	}
}

func caught(r any) error {
	f, ok := r.(failure)
	if !ok {
		panic(r)
	}
	return f.err
}
