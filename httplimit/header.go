package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// counters are pairs of fields, of what remains of a quota and of when it is
// whole again, in canonical form. There is no specification for most of them.
var counters = [][2]string{
	{"Ratelimit-Remaining", "Ratelimit-Reset"}, // the Internet-Draft before its version 7
	{"X-Ratelimit-Remaining", "X-Ratelimit-Reset"},
	{"X-Rate-Limit-Remaining", "X-Rate-Limit-Reset"},
	{"X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
	{"X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	{"Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
	{"Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
	{"Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
	{"Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
}

// inMillis lists the fields by which Azure sends a Retry-After in milliseconds.
var inMillis = []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"}

// holdOf returns for how long an answer asks to hold back, and by which field: 0
// if it does not. Fields that make no sense are ignored. It may be absurdly long.
//
// Retry-After goes before all else. Points in time are compared with the
// server's Date, if it sends one: its clock need not agree with ours.
func holdOf(status int, h http.Header, arrived time.Time) (hold time.Duration, field string) {
	now := arrived
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	longer := func(d time.Duration, name string) {
		if d > hold {
			hold, field = d, name
		}
	}
	if refuses(status) {
		for _, v := range h["Retry-After"] {
			longer(delay(v, now), "Retry-After")
		}
		for _, name := range inMillis {
			for _, v := range h[name] {
				if n, ok := number(strings.TrimSpace(v)); ok {
					longer(time.Duration(min(n, epochMillis)*float64(time.Millisecond)), name)
				}
			}
		}
	}
	// The counters of an answer that has been kept for a while are about then.
	if age, _ := number(strings.TrimSpace(h.Get("Age"))); hold > 0 || age > 0 {
		return hold, field
	}
	longer(exhausted(h["Ratelimit"]), "RateLimit")
	if hold > 0 {
		return hold, field
	}
	for _, pair := range counters {
		resets := h[pair[1]]
		for i, v := range h[pair[0]] {
			if n, ok := number(strings.TrimSpace(v)); ok && n < 1 && i < len(resets) {
				longer(delay(resets[i], now), pair[1])
			}
		}
	}
	return hold, field
}

// refuses reports whether a Retry-After on an answer with that status is about
// further requests. With 202 it is when to ask for the outcome, with 3xx when to
// follow.
func refuses(status int) bool {
	return status == http.StatusForbidden || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusTooManyRequests || status >= 500
}

// epoch is the number of seconds from which on it is a point in time: as a delay
// it would be 31 years. epochMillis is the same for milliseconds.
const (
	epoch       = 1e9
	epochMillis = 1e11
)

// delay reads when to come back: in seconds, as seconds or milliseconds since
// 1970, as a Go duration, as RFC 3339 or as an HTTP date. 0 is at once, or that
// it is none of these.
func delay(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" || len(v) > 64 {
		return 0
	}
	if n, ok := number(v); ok {
		switch {
		case n < epoch:
			return time.Duration(n * float64(time.Second))
		case n < epochMillis:
			return max(0, time.UnixMilli(int64(n*1000)).Sub(now))
		}
		return max(0, time.UnixMilli(int64(n)).Sub(now))
	}
	if d, err := time.ParseDuration(v); err == nil {
		return max(0, d)
	}
	if at, err := time.Parse(time.RFC3339, v); err == nil {
		return max(0, at.Sub(now))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// number reads a number of at most 15 digits before the point, without a sign.
func number(s string) (n float64, ok bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if !digits(whole) || point && !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// digits reports whether a text is 1 to 15 digits.
func digits(s string) bool { return s != "" && len(s) <= 15 && strings.Trim(s, "0123456789") == "" }
