package httplimit_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/httplimit"
)

// arrival is when the answers arrive.
var arrival = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// headerOf makes a header of lines "Name: value".
func headerOf(lines string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(lines, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
		}
	}
	return h
}

func TestHoldOf(t *testing.T) {
	t.Parallel()
	const ok, limited = http.StatusOK, http.StatusTooManyRequests
	for _, tt := range []struct {
		name   string
		status int
		fields string
		want   time.Duration
		field  string
	}{
		{"nothing", limited, "", 0, ""},
		{"seconds", limited, "Retry-After: 2", 2 * time.Second, "Retry-After"},
		{"fractions", limited, "Retry-After: 1.5", 1500 * time.Millisecond, "Retry-After"},
		{"a date", limited, "Retry-After: Sat, 21 Nov 2026 12:01:00 GMT", time.Minute, "Retry-After"},
		{
			"a date of a server in 1999", limited,
			"Date: Fri, 31 Dec 1999 23:59:00 GMT\nRetry-After: Sat, 01 Jan 2000 00:00:00 GMT", time.Minute,
			"Retry-After",
		},
		{"a date before", limited, "Retry-After: Sat, 21 Nov 2026 11:59:00 GMT", 0, ""},
		{"the longest of two", limited, "Retry-After: 2\nRetry-After: 3", 3 * time.Second, "Retry-After"},
		{"a negative delay", limited, "Retry-After: -2", 0, ""},
		{"too many digits", limited, "Retry-After: 1000000000000000", 0, ""},
		{"words", limited, "Retry-After: soon", 0, ""},
		{"not a number", limited, "Retry-After: NaN", 0, ""},
		{"unavailable", 503, "Retry-After: 2", 2 * time.Second, "Retry-After"},
		{"overloaded", 529, "Retry-After: 2", 2 * time.Second, "Retry-After"},
		{"Accepted: when to poll", http.StatusAccepted, "Retry-After: 2", 0, ""},
		{"Found: when to follow", http.StatusFound, "Retry-After: 2", 0, ""},
		{
			"Retry-After takes precedence", limited,
			"Retry-After: 2\nRateLimit: \"a\";r=0;t=60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 70",
			2 * time.Second, "Retry-After",
		},

		{"a quota used up", ok, `RateLimit: "default";r=0;t=5`, 5 * time.Second, "RateLimit"},
		{"a quota not used up", ok, `RateLimit: "default";r=1;t=5`, 0, ""},
		{
			"the longest that is used up", ok, `RateLimit: "a";r=0;t=5, "b";r=0;t=7;pk=:YWJj:, "c;\"";r=3;t=90`,
			7 * time.Second, "RateLimit",
		},
		{"several lines", ok, "RateLimit: \"a\";r=1;t=5\nRateLimit: \"b\";r=0;t=7", 7 * time.Second, "RateLimit"},
		{
			"a token for a name, other parameters", ok, `RateLimit: default; r=0; x-y="1;t=9"; z; t=5`, 5 * time.Second,
			"RateLimit",
		},
		{"no time", ok, `RateLimit: "a";r=0`, 0, ""},
		{"a part that does not parse", ok, `RateLimit: "a";r=0;t=5, "b`, 0, ""},
		{"a comma too many", ok, `RateLimit: "a";r=0;t=5,`, 0, ""},
		{"a decimal", ok, `RateLimit: "a";r=0;t=5.5`, 0, ""},
		{"a string", ok, `RateLimit: "a";r=0;t="5"`, 0, ""},
		{"negative", ok, `RateLimit: "a";r=-1;t=5`, 0, ""},
		{"version 7", ok, `RateLimit: limit=100, remaining=0, reset=5`, 5 * time.Second, "RateLimit"},
		{"version 7, some left", ok, `RateLimit: limit=100, remaining=1, reset=5`, 0, ""},
		{
			"version 6", ok, "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 0\nRateLimit-Reset: 5", 5 * time.Second,
			"Ratelimit-Reset",
		},
		{"absurd", ok, `RateLimit: "a";r=0;t=999999999999999`, 3660 * 24 * time.Hour, "RateLimit"},
		{"from a cache", ok, "Age: 30\nRateLimit: \"a\";r=0;t=5", 0, ""},

		{"delta seconds", ok, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5", 5 * time.Second, "X-Ratelimit-Reset"},
		{
			"the epoch", ok, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795262405", 5 * time.Second,
			"X-Ratelimit-Reset",
		},
		{
			"the epoch in milliseconds", ok, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795262405500",
			5500 * time.Millisecond, "X-Ratelimit-Reset",
		},
		{
			"the epoch of a server that is a minute late", ok,
			"Date: Sat, 21 Nov 2026 11:59:00 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795262345",
			5 * time.Second, "X-Ratelimit-Reset",
		},
		{
			"a Go duration", ok, "X-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 6m0s", 6 * time.Minute,
			"X-Ratelimit-Reset-Tokens",
		},
		{"RFC 3339", ok, "anthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: " +
			"2026-11-21T12:00:05Z", 5 * time.Second, "Anthropic-Ratelimit-Requests-Reset"},
		{"two proxies", ok, "X-RateLimit-Remaining: 3\nX-RateLimit-Reset: 50\nX-RateLimit-Remaining: " +
			"0\nX-RateLimit-Reset: 5", 5 * time.Second, "X-Ratelimit-Reset"},
		{"some left", ok, "X-RateLimit-Remaining: 1\nX-RateLimit-Reset: 5", 0, ""},
		{"minus one for no limit", ok, "X-RateLimit-Remaining: -1\nX-RateLimit-Reset: 5", 0, ""},
		{"only a reset", ok, "X-RateLimit-Reset: 5", 0, ""},
		{"only the remaining", ok, "X-RateLimit-Remaining: 0", 0, ""},
		{
			"GitHub", http.StatusForbidden,
			"X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1795262405\nX-RateLimit-Used: 60",
			5 * time.Second, "X-Ratelimit-Reset",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, field := httplimit.HoldOf(tt.status, headerOf(tt.fields), arrival)
			if got != tt.want || field != tt.field {
				t.Errorf("got %v by %q, want %v by %q", got, field, tt.want, tt.field)
			}
		})
	}
}

// FuzzHoldOf checks that no header makes holdOf panic or return a negative time, and that each hold has its field.
func FuzzHoldOf(f *testing.F) {
	for _, v := range []string{
		"2", "1.5", "-1", "999999999999999", "Sat, 21 Nov 2026 12:01:00 GMT", "1795262405", "6m0s",
		"2026-11-21T12:00:05Z",
		`"a";r=0;t=5, "b";r=0;t=7;pk=:YWJj:`, `limit=100, remaining=0, reset=5`, `"\`, `a;b=?1;c="\"";d=:`, `";`,
		"9223372036854775807ns", "",
	} {
		f.Add(429, v, "0", v, v)
	}
	f.Fuzz(func(t *testing.T, status int, retry, remaining, reset, rate string) {
		h := http.Header{
			"Date": {rate}, "Age": {retry}, "Retry-After": {retry, reset}, "Ratelimit": {rate, reset},
			"X-Ratelimit-Remaining": {remaining, remaining}, "X-Ratelimit-Reset": {reset},
		}
		for range 3 { // with all fields, then without Age and Date, and then without Retry-After: each hides others
			if d, field := httplimit.HoldOf(status, h, arrival); d < 0 || d > 0 != (field != "") {
				t.Errorf("got %v by %q, want 0 or more, by a field if more", d, field)
			}
			delete(h, "Age")
			if h["Date"] == nil {
				delete(h, "Retry-After")
			}
			delete(h, "Date")
		}
	})
}
