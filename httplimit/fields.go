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

// SetHeader writes a decision into the headers of an answer, and replaces what is there:
// RateLimit-Policy and RateLimit in the form of the Internet-Draft draft-ietf-httpapi-ratelimit-headers-11,
// with one item for each charge. Headgate-Via is "fallback" if the store was away and the policy of the limit
// decided. [SetRetryAfter] writes the further fields of a refusal.
//
// The limits are those of the charges, in the same order. They may be missing, or be names alone: then a
// policy has no window. Names of limits are sent as they are, keys are not sent. [headgate.Unlimited] has no
// item, and a limit of capacity 0 has no window.
//
// In RateLimit, r is what remains in whole units, and t a time in seconds in which about r units can
// pass: for a bucket the same share of the window, else the time until the key is unused again. With r=0, t is the
// time until one unit can pass: [headgate.ChargeDecision.NextAfter]. If the charge refuses, t is the time until the
// charge can pass. All are rounded up.
func SetHeader(h http.Header, d *headgate.Decision, limits ...headgate.Limit) {
	decisions := d.Each
	var single [1]headgate.ChargeDecision
	if decisions == nil {
		single[0] = headgate.ChargeDecision{
			Allowed: d.Allowed, LimitName: d.LimitName, Capacity: d.Capacity, Remaining: d.Remaining,
			RetryAfter: d.RetryAfter, NextAfter: d.NextAfter, ResetAfter: d.ResetAfter,
		}
		decisions = single[:]
	}
	var buffer [384]byte // most fields fit, without an allocation
	policy, state := buffer[:0:256], buffer[256:256]
	for i := range decisions {
		charge := &decisions[i]
		var limit headgate.Limit
		if charge.Charge < len(limits) {
			limit = limits[charge.Charge]
		}
		if charge.Capacity >= unlimited {
			continue
		}
		if len(policy) > 0 {
			policy, state = append(policy, ", "...), append(state, ", "...)
		}
		window := windowSeconds(limit)
		start := len(policy)
		policy = appendQuoted(policy, charge.LimitName)
		state = append(state, policy[start:]...)
		policy = appendParameter(policy, ";q=", charge.Capacity)
		if window > 0 && charge.Capacity > 0 {
			policy = appendParameter(policy, ";w=", window)
		}
		state = appendParameter(state, ";r=", charge.Remaining)
		if t, ok := effectiveWindow(charge, limit, window); ok {
			state = appendParameter(state, ";t=", t)
		}
	}
	if end := len(policy); end > 0 {
		joined := string(append(policy, state...))
		values := []string{joined[:end], joined[end:]}
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

// windowSeconds returns the length of the window of a limit in seconds, rounded up; 0 if it is not
// known. The window of a bucket is the time in which its capacity drains.
func windowSeconds(limit headgate.Limit) int64 {
	p := limit.Params()
	switch {
	case p.Kind == law.Bucket && p.Anchor == law.Calendar: // days and months differ in length
		return 0
	case p.Kind == law.Bucket && p.Drain < p.Capacity: // another bucket is empty after one step
		us := float64(p.Capacity) / float64(p.Drain) * float64(p.Step)
		return max(1, int64(math.Ceil(min(us/1e6, maxInteger))))
	case p.Step > 0:
		return max(1, WholeSeconds(time.Duration(p.Step)*time.Microsecond))
	}
	return 0
}

// effectiveWindow returns the parameter t of a charge, the effective window of the draft, in seconds.
// ok is false if the charge can never pass.
func effectiveWindow(charge *headgate.ChargeDecision, limit headgate.Limit, window int64) (seconds int64, ok bool) {
	p := limit.Params()
	switch {
	case !charge.Allowed && charge.RetryAfter == headgate.Never:
		return 0, false
	case !charge.Allowed:
		return waitSeconds(charge.RetryAfter), true
	case charge.Remaining <= 0 && charge.NextAfter > 0:
		return waitSeconds(charge.NextAfter), true
	case charge.Remaining <= 0: // a server sends no NextAfter
		return waitSeconds(charge.ResetAfter), true
	case p.Kind == law.Bucket && p.Anchor == law.Own && p.Drain < p.Capacity && window > 0 && charge.Capacity > 0:
		// The rate of the bucket: a client that paces itself by r and t does not use up a burst at once.
		share := float64(charge.Remaining) / float64(charge.Capacity)
		return max(1, int64(math.Ceil(share*float64(window)))), true
	}
	return WholeSeconds(charge.ResetAfter), true
}

// WholeSeconds returns d in seconds, rounded up, for the fields of an answer.
func WholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// appendParameter appends a parameter. Its value becomes 0 if it is negative, and maxInteger if it is larger.
func appendParameter(dst []byte, name string, value int64) []byte {
	return strconv.AppendInt(append(dst, name...), min(max(value, 0), maxInteger), 10)
}

// appendQuoted appends a string of a structured field. Characters that such a string cannot have become question marks.
func appendQuoted(dst []byte, text string) []byte {
	dst = append(dst, '"')
	special := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if strings.IndexFunc(text, special) < 0 {
		return append(append(dst, text...), '"')
	}
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			dst = append(dst, '\\', byte(r))
		case special(r):
			dst = append(dst, '?')
		default:
			dst = append(dst, byte(r))
		}
	}
	return append(dst, '"')
}

// Style is the form of the old fields X-RateLimit-Limit, -Remaining and -Reset, for clients
// that read no others. There is no specification for them.
type Style uint8

// The styles of X-RateLimit-Reset.
const (
	NoLegacy      Style = iota // the old fields are not written
	LegacySeconds              // the reset is in seconds from now, as Envoy sends it
	LegacyEpoch                // the reset is in seconds since 1970, as GitHub sends it
)

// SetLegacyHeader writes the old fields for a decision, with the figures of the charge that has
// the smallest share left, or that has to wait longest. [headgate.Unlimited] has no fields, and
// the refusal of a request that can never pass has no reset.
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

// refusingLimits returns the names of the limits that refused a request, each once.
func refusingLimits(d *headgate.Decision) []string {
	names := []string{}
	for i := range d.Each {
		if charge := &d.Each[i]; !charge.Allowed && !slices.Contains(names, charge.LimitName) {
			names = append(names, charge.LimitName)
		}
	}
	if len(names) == 0 && !d.Allowed {
		names = append(names, d.LimitName)
	}
	return names
}
