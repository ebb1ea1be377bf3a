package headgate_test

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestBoundsSayWhatTheDocsPromise(t *testing.T) {
	t.Parallel()
	for notation, want := range map[string]string{
		"token-bucket 10/s burst 10":              "10 pass each second; at worst 20 in one second",
		"token-bucket 100/s burst 200":            "100 pass each second, 200 at once; at worst 300 in one second",
		"leaky-bucket 1.5/s capacity 3":           "1.5 pass each second, 3 at once; at worst 4.5 in one second",
		"gcra 10/s burst 5":                       "10 pass each second, 5 at once; at worst 15 in one second",
		"fixed-window 1000/1h":                    "1000 pass in each window of 1h; at worst 2000 in one hour",
		"fixed-window 1000/1h from-first":         "1000 pass in each hour from a first request on; at worst 2000 in one hour",
		"fixed-window 100000/month Europe/Berlin": "100000 pass in each month of the calendar; at worst 200000 in 28 days, 300000 in 31 days",
		"fixed-window 10/day Europe/Berlin":       "10 pass in each day of the calendar; at worst 30 in 24 hours",
		"fixed-window 10/minute":                  "10 pass in each minute of the calendar; at worst 20 in one minute",
		"interval 100/10s burst 300":              "100 pass each 10 seconds, 300 at once; at worst 400 in 10 seconds",
		"sliding-window 1000/30d":                 "1000 pass in about any 30 days; at worst 1999.999 in 30 days, 1999 of a cost of 1",
		"sliding-log 1000/30d":                    "1000 pass in any 30 days (what passed counts until it is exactly that old)",
		"sliding-log 10/1m away share": "10 pass in any minute (what passed counts until it is exactly that old); " +
			"at worst 20 in any minute, half of that by processes that do not reach the store",
		"concurrency 10 ttl 30s": "10 be held at the same time; one that is not renewed ends after 30s",
		"token-bucket 10/s burst 10 away share": "10 pass each second; at worst 40 in one second, " +
			"half of that by processes that do not reach the store",
		"fixed-window 10/1h away allow deadline 100ms": "10 pass in each window of 1h; at worst 20 in one hour; " +
			"everything passes while the store is away",
		"0":         "nothing pass",
		"unlimited": "everything pass",
	} {
		want = notation + " lets " + want
		if got := headgate.MustParse(notation).Bound().String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestNothingPassesBeyondTheBound charges as often as the limit admits, mostly just when RetryAfter is over, and checks
// that in no closed interval more passes than Bound.In says, and that 70 % of the bound is reached.
func TestNothingPassesBeyondTheBound(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{
		"token-bucket 10/s burst 4", "gcra 7/1s burst 3", "leaky-bucket 1.5/s capacity 3", "fixed-window 5/1s",
		"fixed-window 5/1s from-first", "interval 3/1s burst 7", "sliding-window 9/1s", "sliding-log 5/1s",
		"fixed-window 5/minute",
	} {
		t.Run(notation, func(t *testing.T) {
			t.Parallel()
			seed := tier.Pick(1, 1, rand.Uint64())
			rng := rand.New(rand.NewPCG(seed, 0))
			limit := headgate.MustParse(notation)
			maxRatio := 0.0
			for range tier.Pick(6, 30, 100) {
				c := newClock("2026-03-01T12:00:59Z")
				c.advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
				l := newLimiter(c)
				var times []int64
				for range 60 {
					d := allow(t, l, limit, "k")
					switch {
					case d.Allowed:
						times = append(times, c.now)
					case rng.IntN(4) == 0:
						c.advance(time.Duration(rng.IntN(3e9)).Truncate(time.Microsecond))
					default:
						c.advance(d.RetryAfter)
					}
				}
				for i := range times {
					for j := i; j < len(times); j++ {
						passed := int64(j - i + 1)
						bound := limit.Bound().In(time.Duration(times[j]-times[i]) * time.Microsecond)
						if big.NewRat(passed, 1).Cmp(ratOf(bound)) > 0 {
							t.Fatalf("seed %d: %d passed in %d us, the bound is %s", seed, passed, times[j]-times[i], bound)
						}
						maxRatio = max(maxRatio, float64(passed)/bound.Float64())
					}
				}
			}
			if maxRatio < 0.7 {
				t.Errorf("the bound is loose: at most %.2f of it passed", maxRatio)
			}
		})
	}
}

// ratOf returns the exact value of the text of a Cost or an Amount. The text of an Amount may be rounded up.
func ratOf(decimal fmt.Stringer) *big.Rat {
	r, _ := new(big.Rat).SetString(decimal.String())
	return r
}

// TestRatesAreCompiledExactly checks that a bucket drains exactly its amount per period: no rate is rounded.
func TestRatesAreCompiledExactly(t *testing.T) {
	t.Parallel()
	seed := tier.Pick(1, 1, rand.Uint64())
	rng := rand.New(rand.NewPCG(seed, 0))
	compiled, rounds := 0, tier.Pick(500, 2000, 20_000)
	for range rounds {
		amount := headgate.Units(1 + rng.Int64N(1_000_000_000))
		period := []time.Duration{
			time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour,
			7 * time.Millisecond,
		}[rng.IntN(6)]
		limit, err := headgate.NewLimit(
			"", headgate.TokenBucket{Amount: amount, Period: period, Burst: headgate.Units(1 + rng.Int64N(1000))})
		if err != nil {
			continue // the rate does not fit into 53 bits
		}
		compiled++
		p := limit.Params()
		drained := new(big.Rat).Mul(big.NewRat(p.Drain, p.Unit), big.NewRat(period.Microseconds(), p.Step))
		if drained.Cmp(ratOf(amount)) != 0 {
			t.Fatalf("seed %d: %s drains %s a period, want %s", seed, limit, drained, amount)
		}
	}
	if compiled < rounds/3 {
		t.Errorf("only %d of %d rates fit, want a third or more", compiled, rounds)
	}
}
