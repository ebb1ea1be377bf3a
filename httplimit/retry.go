package httplimit

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
)

// DefaultNoRetryBeyond is the longest wait after which a client should send a refused request again by itself. Clients
// of language models put a longer one aside, or sleep for days.
const DefaultNoRetryBeyond = time.Minute

// longestTimer is the most milliseconds that a timer of JavaScript takes: one that is set for longer ends at once.
const longestTimer = 1<<31 - 1

// The fields that say when to come back, in the form of [http.CanonicalHeaderKey].
const (
	retryAfter       = "Retry-After"
	retryAfterMillis = "Retry-After-Ms"
	shouldRetry      = "X-Should-Retry"
)

// SetRetryAfter writes into the headers of an answer when a request that was refused can be sent again, in the place of
// what stands there:
//
//   - Retry-After, with the seconds of [RetryAfter];
//   - Retry-After-Ms beside it, rounded up, for a wait below a minute that is not of whole seconds. The clients of
//     OpenAI and Anthropic read it;
//   - X-Should-Retry: false, which these clients obey, for a wait above noRetryBeyond and for what can never pass.
//     Zero: it is never written.
//
// An admission has none of them.
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
	if noRetryBeyond > 0 && tooLong(d, noRetryBeyond) {
		h[shouldRetry] = []string{"false"}
	}
}

// RetryAfter returns the seconds of a Retry-After: until a request that was refused can pass if
// nobody else comes, rounded up, at least 1 and at most 2147483, since clients whose timer ends at once
// after 2^31-1 ms would send all their attempts together. ok is false if the request was admitted, or can never
// pass.
func RetryAfter(d *headgate.Decision) (seconds int64, ok bool) {
	if d.Allowed || d.RetryAfter == headgate.Never {
		return 0, false
	}
	return min(waitSeconds(d.RetryAfter), longestTimer/1000), true
}

// PushbackMillis returns the value of the trailer grpc-retry-pushback-ms for a call that was refused: the wait in
// milliseconds, rounded up and at least 1; -1, by which clients do not send the call again, for a wait above
// noRetryBeyond and for what can never pass. It is at most 2147483647. Zero: [DefaultNoRetryBeyond].
func PushbackMillis(d *headgate.Decision, noRetryBeyond time.Duration) int64 {
	if tooLong(d, cmp.Or(noRetryBeyond, DefaultNoRetryBeyond)) {
		return -1
	}
	return min(max(1, wholeMillis(d.RetryAfter)), longestTimer)
}

// tooLong reports whether a request that was refused has to wait for longer than it makes sense.
func tooLong(d *headgate.Decision, most time.Duration) bool {
	return d.RetryAfter == headgate.Never || d.RetryAfter > most
}

// waitSeconds returns a wait of a refusal in seconds, rounded up, at least 1.
func waitSeconds(d time.Duration) int64 { return max(1, WholeSeconds(d)) }

// wholeMillis returns d in milliseconds, rounded up.
func wholeMillis(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}
