package httplimit

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// DefaultNoRetryBeyond is the longest wait after which a client should send a refused request again by itself. Clients
// of language models ignore a longer wait, or sleep for days.
const DefaultNoRetryBeyond = time.Minute

// maxTimerMillis is the longest timer of JavaScript in milliseconds: a longer one ends at once.
const maxTimerMillis = 1<<31 - 1

// The fields that say when to come back, in the form of [http.CanonicalHeaderKey].
const (
	retryAfter       = "Retry-After"
	retryAfterMillis = "Retry-After-Ms"
	shouldRetry      = "X-Should-Retry"
)

// SetRetryAfter writes into the headers of an answer when a refused request can be sent again. It replaces the
// values that are there:
//
//   - Retry-After, with the seconds of [RetryAfter];
//   - Retry-After-Ms beside it, rounded up, for a wait below a minute that is no whole number of seconds. The clients
//     of OpenAI and Anthropic read it;
//   - X-Should-Retry: false, which these clients obey, for a wait above noRetryBeyond and for what can never pass.
//     Zero: it is never written.
//
// After an admission, none of them remains.
func SetRetryAfter(h http.Header, d *headgate.Decision, noRetryBeyond time.Duration) {
	for _, name := range []string{retryAfter, retryAfterMillis, shouldRetry} {
		delete(h, name)
	}
	if d.Allowed {
		return
	}
	if seconds, ok := RetryAfter(d); ok {
		h[retryAfter] = []string{strconv.FormatInt(seconds, 10)}
		if ms := wholeMillis(d.RetryAfter); ms < 60_000 && ms%1000 != 0 {
			h[retryAfterMillis] = []string{strconv.FormatInt(ms, 10)}
		}
	}
	if noRetryBeyond > 0 && waitsTooLong(d, noRetryBeyond) {
		h[shouldRetry] = []string{"false"}
	}
}

// RetryAfter returns the value of a Retry-After: the seconds until a refused request can pass if no other
// request comes, rounded up. It is at least 1 and at most 2147483: clients whose timer ends at once above
// 2^31-1 ms would send all their attempts together. ok is false if the request was admitted, or can never pass.
func RetryAfter(d *headgate.Decision) (seconds int64, ok bool) {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return 0, false
	}
	return min(waitSeconds(d.RetryAfter), maxTimerMillis/1000), true
}

// PushbackMillis returns the value of the trailer grpc-retry-pushback-ms for a refused call: the wait in
// milliseconds, rounded up, from 1 to 2147483647. It is -1, which tells clients not to retry, for a call that can
// never pass, or has to wait for longer than noRetryBeyond; zero: [DefaultNoRetryBeyond].
func PushbackMillis(d *headgate.Decision, noRetryBeyond time.Duration) int64 {
	if waitsTooLong(d, cmp.Or(noRetryBeyond, DefaultNoRetryBeyond)) {
		return -1
	}
	return min(max(1, wholeMillis(d.RetryAfter)), maxTimerMillis)
}

// waitsTooLong reports whether a refused request can never pass, or has to wait for longer than maxWait.
func waitsTooLong(d *headgate.Decision, maxWait time.Duration) bool {
	return d.RetryAfter == headgate.Never || d.RetryAfter > maxWait
}

// waitSeconds returns the wait of a refused request in seconds, rounded up, at least 1.
func waitSeconds(d time.Duration) int64 { return max(1, WholeSeconds(d)) }

// wholeMillis returns d in milliseconds, rounded up.
func wholeMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
