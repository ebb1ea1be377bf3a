// Package perlimit keeps a value for each limit of the catalog, such as its counts. Their number does not
// depend on what clients send.
package perlimit

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Names that share a value.
const (
	Inline  = "(inline)"  // the request says the limit
	Unknown = "(unknown)" // there is no such limit
	Others  = "(others)"  // there are more limits than have a value of their own
)

// Values has one T for each limit, made at its first use. It is safe for concurrent use.
type Values[T any] struct {
	max     int
	defined func(name string) bool
	value   func(name string) *T

	known                   atomic.Pointer[map[string]*T] // by name; replaced, never changed
	inline, unknown, others *T

	mu sync.Mutex // held while known is replaced
}

// New returns values of which at most max are of limits alone. defined reports whether the catalog has a limit, and
// value makes one for a limit, or for another of the names.
func New[T any](max int, defined func(name string) bool, value func(name string) *T) *Values[T] {
	v := &Values[T]{
		max: max, defined: defined, value: value, inline: value(Inline), unknown: value(Unknown), others: value(Others),
	}
	v.known.Store(&map[string]*T{})
	return v
}

// Of returns the value of a limit, which is given by its name or notation.
func (v *Values[T]) Of(name string) *T {
	known := *v.known.Load()
	if t := known[name]; t != nil {
		return t
	}
	if strings.Contains(name, " ") {
		return v.inline
	}
	if name == "" || !v.defined(name) {
		return v.unknown
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known = *v.known.Load()
	switch {
	case known[name] != nil:
		return known[name]
	case len(known) >= v.max:
		return v.others
	}
	more := maps.Clone(known)
	more[name] = v.value(name)
	v.known.Store(&more)
	return more[name]
}

// Forget forgets limits that are defined no more, and calls gone for each of them.
func (v *Values[T]) Forget(gone func(name string, t *T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	known := maps.Clone(*v.known.Load())
	maps.DeleteFunc(known, func(name string, t *T) bool {
		defined := v.defined(name)
		if !defined {
			gone(name, t)
		}
		return !defined
	})
	v.known.Store(&known)
}

// Each calls do for each value, the shared ones last.
func (v *Values[T]) Each(do func(name string, t *T)) {
	for name, t := range *v.known.Load() {
		do(name, t)
	}
	do(Inline, v.inline)
	do(Unknown, v.unknown)
	do(Others, v.others)
}
