package httplimit

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// quotaFields are pairs of fields in canonical form: what remains of a quota, and when it is
// whole again. There is no specification for most of them.
var quotaFields = [][2]string{
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

// millisFields are the fields in which Azure sends a Retry-After in milliseconds.
var millisFields = []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"}

// holdOf returns how long an answer asks to hold back, and in which field: 0
// if no field asks. Malformed fields are ignored. The time may be absurdly long.
//
// Retry-After takes precedence. Points in time are compared with the
// server's Date, if it sends one: its clock need not agree with ours.
func holdOf(status int, h http.Header, arrivedAt time.Time) (hold time.Duration, field string) {
	now := arrivedAt
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	keepLongest := func(d time.Duration, name string) {
		if d > hold {
			hold, field = d, name
		}
	}
	if isRefusalStatus(status) {
		for _, v := range h["Retry-After"] {
			keepLongest(parseDelay(v, now), "Retry-After")
		}
		for _, name := range millisFields {
			for _, v := range h[name] {
				if n, ok := parseNumber(strings.TrimSpace(v)); ok { // bounded, since a Duration would overflow
					keepLongest(time.Duration(min(n, minEpochMillis)*float64(time.Millisecond)), name)
				}
			}
		}
	}
	// The quota fields of an answer from a cache are out of date.
	if age, _ := parseNumber(strings.TrimSpace(h.Get("Age"))); hold > 0 || age > 0 {
		return hold, field
	}
	keepLongest(untilQuotaReturns(h["Ratelimit"]), "RateLimit")
	if hold > 0 {
		return hold, field
	}
	for _, pair := range quotaFields {
		resets := h[pair[1]]
		for i, v := range h[pair[0]] {
			if n, ok := parseNumber(strings.TrimSpace(v)); ok && n < 1 && i < len(resets) {
				keepLongest(parseDelay(resets[i], now), pair[1])
			}
		}
	}
	return hold, field
}

// isRefusalStatus reports whether a Retry-After beside this status is about further requests. With 202 it says when to
// poll for the result, with 3xx when to follow the redirect.
func isRefusalStatus(status int) bool {
	return status == http.StatusForbidden || status == http.StatusRequestEntityTooLarge ||
		status == http.StatusTooManyRequests || status >= 500
}

// A number from minEpochSeconds on is a point in time, in seconds since 1970: as a delay
// it would be 31 years. From minEpochMillis on it is in milliseconds since 1970.
const (
	minEpochSeconds = 1e9
	minEpochMillis  = 1e11
)

// parseDelay returns how long to wait. The value may be in seconds, in seconds or milliseconds since 1970, a Go
// duration, a time of RFC 3339 or an HTTP date. It returns 0 for another value, and for a time in the past.
func parseDelay(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" || len(v) > 64 {
		return 0
	}
	if n, ok := parseNumber(v); ok {
		switch {
		case n < minEpochSeconds:
			return time.Duration(n * float64(time.Second))
		case n < minEpochMillis:
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

// parseNumber reads a decimal without a sign, with at most 15 digits before the point and after it.
func parseNumber(s string) (n float64, ok bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if !isDigits(whole) || point && !isDigits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil
}

// isDigits reports whether a text consists of 1 to 15 digits.
func isDigits(s string) bool { return s != "" && len(s) <= 15 && strings.Trim(s, "0123456789") == "" }
