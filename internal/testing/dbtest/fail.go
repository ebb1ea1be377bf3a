package dbtest

import (
	"fmt"
	"testing"
)

// failure is the panic value of a function that cannot go on. It takes dozens of steps to start a server, and each may
// fail. With panics, the functions between need not return errors.
type failure struct{ err error }

// check fails if there is an error.
func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// must returns a value, or fails if there is an error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// returnFailure, deferred, lets the deferring function return the error with which it failed.
func returnFailure(err *error) {
	if r := recover(); r != nil {
		*err = errorOf(r)
	}
}

// failTest, deferred, ends the test if the deferring function fails.
func failTest(tb testing.TB) {
	tb.Helper()
	if r := recover(); r != nil {
		tb.Fatalf("dbtest: %v", errorOf(r))
	}
}

// wrapFailure, deferred, puts a text before the error with which the deferring function fails.
func wrapFailure(format string, args ...any) {
	if r := recover(); r != nil {
		panic(failure{fmt.Errorf(format+": %w", append(args, errorOf(r))...)})
	}
}

// onFailure, deferred, calls a function if the deferring function fails.
func onFailure(cleanUp func()) {
	if r := recover(); r != nil {
		cleanUp()
		panic(r)
	}
}

// errorOf returns the error of a failure. Any other panic goes on.
func errorOf(r any) error {
	f, ok := r.(failure)
	if !ok {
		panic(r)
	}
	return f.err
}
