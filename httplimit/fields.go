package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
)

// maxInteger is the largest integer of a structured field (RFC 9651).
const maxInteger = 999_999_999_999_999

// unlimited is the Capacity of [headgate.Unlimited], in whole units.
const unlimited = law.Max / 1000

// SetHeader writes what a decision says into the headers of an answer, in the place of what stands
// there: RateLimit-Policy and RateLimit as the Internet-Draft draft-ietf-httpapi-ratelimit-headers-11
// has them, with one item for each charge. Headgate-Via is "fallback" if the store was away and the policy of the limit
// decided. What a refusal has beside them is written by [SetRetryAfter].
//
// Limits are those of the charges, in their order. They may be missing, or be names alone: then a
// policy has no window. Names of limits appear as they are, keys do not. [headgate.Unlimited] has no
// item, and a limit of which nothing passes, q=0, has no window.
//
// In RateLimit, r is what remains in whole units, and t a time in seconds in which about r units can
// pass: the share of the window for a bucket, else the time until the key is unused again. With r=0 it is the
// time until one unit can pass: [headgate.ChargeDecision.NextAfter]. The t of a charge that refuses is when it can
// pass. All are rounded up.
func SetHeader(h http.Header, d *headgate.Decision, limits ...headgate.Limit) {
	each := d.Each
	var one [1]headgate.ChargeDecision
	if each == nil {
		one[0] = headgate.ChargeDecision{
			Allowed: d.Allowed, LimitName: d.LimitName, Capacity: d.Capacity, Remaining: d.Remaining,
			RetryAfter: d.RetryAfter, NextAfter: d.NextAfter, ResetAfter: d.ResetAfter,
		}
		each = one[:]
	}
	var room [384]byte // most fields fit, and need no memory of their own
	policy, state := room[:0:256], room[256:256]
	for i := range each {
		f := &each[i]
		var limit headgate.Limit
		if f.Charge < len(limits) {
			limit = limits[f.Charge]
		}
		if f.Capacity >= unlimited {
			continue
		}
		if len(policy) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		window := windowOf(limit)
		start := len(policy)
		policy = quoted(policy, f.LimitName)
		state = append(state, policy[start:]...)
		policy = parameter(policy, ";q=", f.Capacity)
		if window > 0 && f.Capacity > 0 {
			policy = parameter(policy, ";w=", window)
		}
		state = parameter(state, ";r=", f.Remaining)
		if t, ok := effective(f, limit, window); ok {
			state = parameter(state, ";t=", t)
		}
	}
	if end := len(policy); end > 0 {
		both := string(append(policy, state...))
		values := []string{both[:end], both[end:]}
		h["Ratelimit-Policy"], h["Ratelimit"] = values[:1:1], values[1:]
	} else {
		delete(h, "Ratelimit-Policy")
		delete(h, "Ratelimit")
	}
	if d.Via == headgate.ViaFallback {
		h["Headgate-Via"] = []string{d.Via.String()}
	} else {
		delete(h, "Headgate-Via")
	}
}

// windowOf returns the length of the window of a limit in seconds, rounded up; 0 if it is not
// known. That of a bucket is the time in which its capacity drains.
func windowOf(limit headgate.Limit) int64 {
	p := limit.Params()
	switch {
	case p.Kind == law.Bucket && p.Anchor == law.Calendar: // its length differs
		return 0
	case p.Kind == law.Bucket && p.Drain < p.Capacity: // else it is empty after a step
		us := float64(p.Capacity) / float64(p.Drain) * float64(p.Step)
		return max(1, int64(math.Ceil(min(us/1e6, maxInteger))))
	case p.Step > 0:
		return max(1, WholeSeconds(time.Duration(p.Step)*time.Microsecond))
	}
	return 0
}

// effective returns the t of a charge in seconds; ok is false if there is none, since it can never
// pass.
func effective(f *headgate.ChargeDecision, limit headgate.Limit, window int64) (seconds int64, ok bool) {
	p := limit.Params()
	switch {
	case !f.Allowed && f.RetryAfter == headgate.Never:
		return 0, false
	case !f.Allowed:
		return waitSeconds(f.RetryAfter), true
	case f.Remaining <= 0 && f.NextAfter > 0:
		return waitSeconds(f.NextAfter), true
	case f.Remaining <= 0: // a server has decided, which says only when the key is unused
		return waitSeconds(f.ResetAfter), true
	case p.Kind == law.Bucket && p.Anchor == law.Own && p.Drain < p.Capacity && window > 0 && f.Capacity > 0:
		// A bucket promises no more than its rate: a client that paces itself by r and t does
		// not use up a burst at once.
		share := float64(f.Remaining) / float64(f.Capacity)
		return max(1, int64(math.Ceil(share*float64(window)))), true
	}
	return WholeSeconds(f.ResetAfter), true
}

// WholeSeconds returns d in seconds, rounded up, as all fields have them.
func WholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// parameter appends a parameter, which has at most 15 digits.
func parameter(to []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(to, name...), min(max(value, 0), maxInteger), 10)
}

// quoted appends a string of a structured field. What cannot stand in one becomes a question mark.
func quoted(to []byte, text string) []byte {
	to = append(to, '"')
	odd := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if strings.IndexFunc(text, odd) < 0 {
		return append(append(to, text...), '"')
	}
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			to = append(to, '\\', byte(r))
		case odd(r):
			to = append(to, '?')
		default:
			to = append(to, byte(r))
		}
	}
	return append(to, '"')
}

// Style says how the old fields X-RateLimit-Limit, -Remaining and -Reset are written, for clients
// that know no others. There is no specification for them.
type Style uint8

// The styles of X-RateLimit-Reset.
const (
	NoLegacy      Style = iota // the old fields are not written
	LegacySeconds              // seconds from now, as Envoy has it
	LegacyEpoch                // seconds since 1970, as GitHub has it
)

// SetLegacyHeader writes the old fields for a decision, whose figures are those of the charge with
// the smallest share left, or of the one that has to wait longest. [headgate.Unlimited] has none, and
// a refusal of what can never pass has no reset.
func SetLegacyHeader(h http.Header, d *headgate.Decision, style Style) {
	if style == NoLegacy {
		return
	}
	for _, name := range []string{legacyLimit, legacyRemaining, legacyReset} {
		delete(h, name)
	}
	if d.Capacity >= unlimited {
		return
	}
	set := func(name string, value int64) { h[name] = []string{strconv.FormatInt(value, 10)} }
	set(legacyLimit, d.Capacity)
	set(legacyRemaining, d.Remaining)
	if !d.Allowed && d.RetryAfter == headgate.Never {
		return
	}
	reset := WholeSeconds(d.ResetAfter)
	if !d.Allowed {
		reset = waitSeconds(d.RetryAfter)
	}
	if style == LegacyEpoch {
		reset += d.At.Add(time.Second - 1).Unix() // rounded up
	}
	set(legacyReset, reset)
}

// The old fields, in the form of [http.CanonicalHeaderKey].
const (
	legacyLimit     = "X-Ratelimit-Limit"
	legacyRemaining = "X-Ratelimit-Remaining"
	legacyReset     = "X-Ratelimit-Reset"
)

// violated returns the names of the limits that refused a request, each once.
func violated(d *headgate.Decision) []string {
	names := []string{}
	for i := range d.Each {
		if f := &d.Each[i]; !f.Allowed && !slices.Contains(names, f.LimitName) {
			names = append(names, f.LimitName)
		}
	}
	if len(names) == 0 && !d.Allowed {
		names = append(names, d.LimitName)
	}
	return names
}
