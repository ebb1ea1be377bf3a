package httplimit_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/tier"
)

// pick returns a random text of several.
func pick(rnd *rand.Rand, texts ...string) string { return texts[rnd.IntN(len(texts))] }

// randomQuota returns a random member of a RateLimit list, and the hold that it asks for.
func randomQuota(rnd *rand.Rand) (text string, hold time.Duration) {
	var b strings.Builder
	b.WriteString(pick(rnd, `"burst"`, `daily`, `"a,b"`, `"a\"b;r=0"`, `*any/:x`, `42`, `-1.5`, `?0`, `:YWJj:`,
		`@1659578233`, `%"f%c3%bc"`, `("a" b);q=1`))
	isInnerList := strings.HasPrefix(b.String(), "(") // several names at once, which the draft does not allow
	remaining, reset := "", ""
	for range rnd.IntN(6) {
		b.WriteString(pick(rnd, ";", "; ", ";  "))
		switch rnd.IntN(4) {
		case 0:
			remaining = pick(rnd, "0", "0", "0", "1", "700", "-1", "0.0", `"0"`, "@0", "?0", "a")
			b.WriteString("r=" + remaining)
		case 1:
			reset = pick(rnd, "0", "5", "7", "60", "999999999999999", "-5", "5.5", `"5"`, "@5", "a")
			b.WriteString("t=" + reset)
		default:
			b.WriteString(pick(rnd, `q=10`, `pk=:YWJj:`, `b=?1`, `x="a\"b;r=0"`, `z=@1659578233`, `u=%"f%c3%bc"`, `y`,
				`*k=tok/en`, `d=-0.5`))
		}
	}
	if remaining == "0" && !isInnerList {
		switch reset {
		case "5", "7", "60":
			hold, _ = time.ParseDuration(reset + "s")
		case "999999999999999":
			hold = 3660 * 24 * time.Hour
		}
	}
	return b.String(), hold
}

// TestHoldOfRandomRateLimits checks random RateLimit fields. A field with a malformed part asks for no hold.
func TestHoldOfRandomRateLimits(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range tier.Pick(3000, 100_000, 1_000_000) {
		var (
			lines []string
			want  time.Duration
		)
		malformed := rnd.IntN(8) == 0
		n := 1 + rnd.IntN(4)
		for i := range n {
			text, hold := randomQuota(rnd)
			if want = max(want, hold); malformed && i == n-1 {
				text += pick(rnd, "(", ")", `"`, "=", ";", ";R=0", ",", " x", ";r=", ";t=@", ";t=1234567890123456",
					";s=\"é\"", `;u=%"f%zz"`, ";b=?2")
				want = 0
			}
			if len(lines) > 0 && rnd.IntN(2) == 0 {
				lines[len(lines)-1] += pick(rnd, ",", ", ", " ,\t") + text
			} else {
				lines = append(lines, text)
			}
		}
		got, _ := httplimit.HoldOf(http.StatusOK, http.Header{"Ratelimit": lines}, arrival)
		if got != want {
			t.Fatalf("%q: got %v, want %v", lines, got, want)
		}
	}
}

// TestHoldOfRateLimitVersion7 checks RateLimit dictionaries. The last member of a name counts if it is an integer.
func TestHoldOfRateLimitVersion7(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]time.Duration{
		`limit=100, remaining=0, reset=5`:                         5 * time.Second,
		`limit=100;w=60, remaining=0;x=@1659578233, reset=5;y`:    5 * time.Second,
		`limit=(10 100), other=@1659578233, remaining=0, reset=5`: 5 * time.Second,
		`remaining=3, remaining=0, reset=9, reset=5`:              5 * time.Second,
		`remaining=0, reset=999999999999999`:                      3660 * 24 * time.Hour,
		`remaining=1, reset=5`:                                    0,
		`remaining=0`:                                             0,
		`reset=5`:                                                 0,
		`remaining=?0, reset=5`:                                   0,
		`remaining=(0), reset=5`:                                  0,
		`remaining=0, reset=5.0`:                                  0,
		`remaining=0, reset=-5`:                                   0,
		`Remaining=0, reset=5`:                                    0,
		`remaining=0, reset=5,`:                                   0,
		`"a";r=0;t=5, remaining=0, reset=5`:                       0,
		``:                                                        0,
	} {
		if got, _ := httplimit.HoldOf(http.StatusOK, http.Header{"Ratelimit": {field}}, arrival); got != want {
			t.Errorf("%s: got %v, want %v", field, got, want)
		}
	}
}
