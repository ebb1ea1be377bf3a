package headgate_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestWithin(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		notation, cost, first, last string
		want                        int64
	}{
		{"token-bucket 10/s burst 5", "1", "12:00:00", "12:00:00", 5},
		{"token-bucket 10/s burst 5", "1", "12:00:00", "12:00:01.999999", 24},
		{"token-bucket 10/s burst 5", "1", "12:00:00", "12:00:02", 25},
		{"token-bucket 10/s burst 5", "2.5", "12:00:00", "12:00:02", 10},
		{"token-bucket 10/s burst 5", "6", "12:00:00", "12:00:02", 4}, // 25/6: a cost above the burst is no error
		{"leaky-bucket 1.5/s capacity 3", "0.001", "12:00:00", "12:00:01", 4500},
		{"fixed-window 5/1m", "1", "12:00:01", "12:00:59.999999", 5},
		{"fixed-window 5/1m", "1", "12:00:59", "12:01:00", 10},
		{"fixed-window 5/1m", "2", "12:00:59", "12:01:00", 4},
		{"fixed-window 5/1m from-first", "1", "12:00:59", "12:01:58.999999", 5},
		{"fixed-window 5/1m from-first", "1", "12:00:59", "12:01:59", 10},
		{"fixed-window 5/minute", "1", "12:00:59", "12:01:00", 10},
		{"fixed-window 5/day Europe/Berlin", "1", "12:00:00", "22:59:59.999999", 5},
		{"fixed-window 5/day Europe/Berlin", "1", "12:00:00", "23:00:00", 10},
		{"fixed-window 5/hour Asia/Kolkata", "1", "12:00:00", "14:45:00", 20},
		{"interval 3/10s burst 7", "1", "12:00:05", "12:00:14.999999", 7},
		{"interval 3/10s burst 7", "1", "12:00:05", "12:00:25", 13},
		{"interval 3/10s", "2", "12:00:05", "12:00:25", 3},
		{"sliding-window 9/1m", "1", "12:00:00", "12:00:59.999999", 9},
		{"sliding-window 9/1m", "1", "12:00:59", "12:01:00", 18},
		{"sliding-log 5/1m", "1", "12:00:59", "12:01:58.999999", 5},
		{"sliding-log 5/1m", "1", "12:00:59", "12:01:59", 10},
		{"sliding-log 5/1m", "1", "12:00:59", "12:00:58", 0},
		{"sliding-log 9000000/1us", "0.001", "00:00:00", "23:00:00", math.MaxInt64},
	} {
		at := func(s string) time.Time {
			instant, err := time.Parse("2006-01-02 15:04:05", "2026-03-01 "+s)
			if err != nil {
				t.Fatal(err)
			}
			return instant
		}
		got, err := headgate.MustParse(tt.notation).Within(at(tt.first), at(tt.last), headgate.MustCost(tt.cost))
		if err != nil || got != tt.want {
			t.Errorf("%s, %s from %s to %s: %d, %v, want %d", tt.notation, tt.cost, tt.first, tt.last, got, err, tt.want)
		}
	}
	minute := headgate.MustParse("fixed-window 5/1m")
	if n, err := minute.Within(time.Now(), time.Now(), headgate.MustCost("0.0001")); err != nil || n != 5000 {
		t.Errorf("a cost of 0.0001, charged as 0.001: got %d, %v, want 5000", n, err)
	}
	for _, limit := range []headgate.Limit{{}, headgate.MustNamed("api")} {
		if _, err := limit.Within(time.Now(), time.Now(), headgate.Units(1)); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("the limit %q, of which no algorithm is known: got %v, want ErrInvalid", limit, err)
		}
	}
}

// TestWithinIsReachedAndNotExceeded checks that never more charges pass than Within says, and that a caller that
// retries whenever RetryAfter is over gets exactly that many under the limits marked true.
func TestWithinIsReachedAndNotExceeded(t *testing.T) {
	t.Parallel()
	for notation, isReached := range map[string]bool{
		"token-bucket 10/s burst 4":          true,
		"token-bucket 999999999/30d burst 3": true,
		"gcra 7/1s burst 3":                  true,
		"leaky-bucket 1.5/s capacity 3":      true,
		"fixed-window 5/1s":                  true,
		"fixed-window 5/1s from-first":       true,
		"fixed-window 5/minute":              true,
		"fixed-window 5/hour Asia/Kabul":     true,
		"interval 3/1s burst 7":              true,
		"interval 3/1s":                      true,
		"sliding-log 5/1s":                   true,
		"sliding-window 9/1s":                false,
		"token-bucket 3/s burst 5 block 1s":  false,
	} {
		t.Run(notation, func(t *testing.T) {
			t.Parallel()
			seed := tier.Pick(1, 1, rand.Uint64())
			rng := rand.New(rand.NewPCG(seed, 0))
			limit := headgate.MustParse(notation)
			for range tier.Pick(6, 30, 300) {
				c := newClock("2026-03-01T12:00:59Z")
				c.advance(time.Duration(rng.IntN(1000)) * time.Millisecond)
				l := newLimiter(c)
				cost := headgate.MustCost([]string{"1", "1", "2", "0.5", "1.25"}[rng.IntN(5)])
				retries := rng.IntN(2) == 0
				first, passed := time.UnixMicro(c.now), int64(0)
				for range 100 {
					d, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "k", Cost: cost})
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						passed++
					}
					maxCharges, err := limit.Within(first, d.At, cost)
					if err != nil || passed > maxCharges || passed < maxCharges && !d.Allowed && retries && isReached {
						t.Fatalf("seed %d: %d of cost %s passed from %s to %s, Within says %d, %v", seed, passed, cost,
							first, d.At, maxCharges, err)
					}
					switch {
					case d.Allowed:
					case retries || rng.IntN(4) > 0:
						c.advance(d.RetryAfter)
					default:
						c.advance(time.Duration(rng.IntN(3e9)).Truncate(time.Microsecond))
					}
				}
			}
		})
	}
}
