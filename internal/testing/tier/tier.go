// Package tier says which tests run how often.
//
// Every test runs with `make test`, before each commit, unless its first statement says that it takes too long for
// that:
//
//	func TestConformanceOnAnotherServer(t *testing.T) {
//		tier.Engines(t) // run by make engines, and by make nightly
//
// [Env] chooses the tier: tests of later tiers are skipped. `make engines` finds the packages with such tests by their
// import of this package or of storetest.
package tier

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Env is the environment variable that names the tier: test (also when it is empty), engines or nightly.
const Env = "HEADGATE_TEST_TIER"

// Tier is a set of tests. Each tier includes all lower ones.
type Tier int

// The tiers, by the target of make that runs them.
const (
	OfTest    Tier = iota // before each commit
	OfEngines             // before a change of law, store or catalog is submitted
	OfNightly             // each night
)

var names = [...]string{"test", "engines", "nightly"}

// String returns the value of [Env] that chooses the tier. It is the name of the target of make, too.
func (t Tier) String() string { return names[t] }

// Current returns the tier that the environment names. It panics if there is no such tier.
func Current() Tier {
	name := os.Getenv(Env)
	for i, n := range names {
		if name == n || name == "" {
			return Tier(i)
		}
	}
	panic(fmt.Sprintf("%s=%s: want test, engines or nightly", Env, name))
}

// Engines skips a test below the tier of make engines.
func Engines(tb testing.TB) {
	tb.Helper()
	skipBelow(tb, OfEngines)
}

// Nightly skips a test below the tier of make nightly.
func Nightly(tb testing.TB) {
	tb.Helper()
	skipBelow(tb, OfNightly)
}

func skipBelow(tb testing.TB, t Tier) {
	tb.Helper()
	if Current() < t {
		tb.Skipf("not with make test: make %s runs it, or %s=%s", t, Env, t)
	}
}

// Pick returns the value for the current tier, such as the number of rounds of a test.
func Pick[T any](test, engines, nightly T) T { return [...]T{test, engines, nightly}[Current()] }

// SeedEnv is the environment variable that sets the seed of random tests.
const SeedEnv = "HEADGATE_TEST_SEED"

// Seed returns the seed of a random test: the one in [SeedEnv], or else 1 with make test and a new one in later tiers.
// With a new seed, make test could fail after a change because of an older fault.
func Seed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv(SeedEnv), 10, 64); err == nil {
		return seed
	}
	return Pick(1, rand.Uint64(), rand.Uint64())
}
