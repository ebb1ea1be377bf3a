// Package rivals brings other limiters, and bare statements, behind one small
// interface. They are used as their READMEs show.
package rivals

import (
	"context"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Limiter decides about one unit for a key.
type Limiter interface {
	Allow(ctx context.Context, key string) (bool, error)
}

// Quota is what a limiter is to enforce: Tokens per Period, all of them at
// once if asked for.
type Quota struct {
	Tokens int
	Period time.Duration
}

// The quotas of the comparisons.
var (
	Always = Quota{1_000_000_000, time.Hour} // never binds
	Once   = Quota{1, 24 * time.Hour}        // refuses after the first
	Tight  = Quota{1000, time.Second}        // binds, and refills
)

// each returns the time in which one token comes back.
func (q Quota) each() time.Duration { return q.Period / time.Duration(q.Tokens) }

// Local is a limiter that keeps its state in this process.
type Local struct {
	Name string
	New  func(q Quota, keys int) (l Limiter, stop func(), err error)
}

// Locals returns the limiters that keep their state in this process.
func Locals() []Local {
	return []Local{
		{Named("golang.org/x/time", "x/time/rate + map"), xTime},
		{Named("github.com/sethvargo/go-limiter", "go-limiter"), goLimiter},
		{Named("github.com/ulule/limiter/v3", "ulule/limiter"), ulule},
		{Named("github.com/throttled/throttled/v2", "throttled LRU"), throttledLRU},
		{Named("github.com/throttled/throttled/v2", "throttled map"), throttledMap},
		{Named("github.com/mennanov/limiters", "mennanov/limiters"), mennanov},
		{Named("github.com/failsafe-go/failsafe-go", "failsafe-go bursty + map"), failsafe},
	}
}

// Ceilings returns what is not a product: a bare GCRA on one number for each
// key, in three kinds of table, none of which expires or bounds anything.
func Ceilings() []Local {
	return []Local{
		{"bare GCRA, flat table", flatTable},
		{"bare GCRA, 256 maps", shardedMaps},
		{"bare GCRA, sync.Map", syncMap},
	}
}

// Named returns a name with the version of its module in this program.
func Named(module, name string) string {
	if v := Version(module); v != "" {
		return name + " " + v
	}
	return name
}

// Version returns the version of a module in this program, or "".
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == module {
			return strings.TrimSuffix(m.Version, "+incompatible")
		}
	}
	return ""
}

// Func is a function as a Limiter.
type Func func(ctx context.Context, key string) (bool, error)

// Allow implements Limiter.
func (f Func) Allow(ctx context.Context, key string) (bool, error) { return f(ctx, key) }

// keyed is the usual table around a limiter that knows no keys.
type keyed[T any] struct {
	mu   sync.RWMutex
	of   map[string]T // guarded by mu
	make func() T
}

func newKeyed[T any](keys int, make_ func() T) *keyed[T] {
	return &keyed[T]{of: make(map[string]T, keys), make: make_}
}

func (k *keyed[T]) get(key string) T {
	k.mu.RLock()
	t, ok := k.of[key]
	k.mu.RUnlock()
	if ok {
		return t
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t, ok := k.of[key]; ok {
		return t
	}
	t = k.make()
	k.of[key] = t
	return t
}

func nothing() {}
