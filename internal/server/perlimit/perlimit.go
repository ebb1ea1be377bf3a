// Package perlimit keeps a value for each limit of the catalog, such as its counts. The number of values does not
// depend on what clients send.
package perlimit

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Names of the values that several limits share.
const (
	InlineLimits  = "(inline)"  // limits that a request gives by notation
	UnknownLimits = "(unknown)" // limits that the catalog does not have
	OtherLimits   = "(others)"  // limits above the maximum
)

// Values has a T for each limit, up to a maximum, created at its first use. It is safe for concurrent use.
type Values[T any] struct {
	max      int
	defined  func(name string) bool
	newValue func(name string) *T

	values                  atomic.Pointer[map[string]*T] // by name; the map is replaced, never changed
	inline, unknown, others *T

	mu sync.Mutex // held while values is replaced
}

// New returns values for at most max limits; further limits share one. defined reports whether the catalog has a
// limit. newValue creates the value of a limit, or, at once, of a shared name.
func New[T any](max int, defined func(name string) bool, newValue func(name string) *T) *Values[T] {
	v := &Values[T]{max: max, defined: defined, newValue: newValue}
	v.inline, v.unknown, v.others = newValue(InlineLimits), newValue(UnknownLimits), newValue(OtherLimits)
	v.values.Store(&map[string]*T{})
	return v
}

// Of returns the value of a limit, which is given by its name or notation, or the shared value that it has.
func (v *Values[T]) Of(name string) *T {
	values := *v.values.Load()
	if t := values[name]; t != nil {
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
	values = *v.values.Load()
	switch {
	case values[name] != nil:
		return values[name]
	case len(values) >= v.max:
		return v.others
	}
	updated := maps.Clone(values)
	updated[name] = v.newValue(name)
	v.values.Store(&updated)
	return updated[name]
}

// Forget removes the values of limits that are no longer defined, and calls forgotten for each. It holds a lock then.
func (v *Values[T]) Forget(forgotten func(name string, t *T)) {
	v.mu.Lock()
	defer v.mu.Unlock()
	values := maps.Clone(*v.values.Load())
	maps.DeleteFunc(values, func(name string, t *T) bool {
		defined := v.defined(name)
		if !defined {
			forgotten(name, t)
		}
		return !defined
	})
	v.values.Store(&values)
}

// Each calls do for each value, the shared ones last.
func (v *Values[T]) Each(do func(name string, t *T)) {
	for name, t := range *v.values.Load() {
		do(name, t)
	}
	do(InlineLimits, v.inline)
	do(UnknownLimits, v.unknown)
	do(OtherLimits, v.others)
}
