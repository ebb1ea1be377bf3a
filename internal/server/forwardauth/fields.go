package forwardauth

import (
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

// Fields selects the header fields of answers beside Retry-After, which a refusal always has if it can pass later. The
// zero value selects RateLimit and RateLimit-Policy.
type Fields struct {
	NoDraft       bool            // leaves RateLimit and RateLimit-Policy out
	Legacy        httplimit.Style // style of X-RateLimit-Limit, -Remaining and -Reset
	NoRetryBeyond time.Duration   // from which wait on X-Should-Retry is false, see [httplimit.SetRetryAfter]; 0: never
}

// ParseFields returns Fields with all named kinds: draft, x-ratelimit, x-ratelimit-epoch and x-should-retry. Without
// names it returns the zero value.
func ParseFields(names []string) (f Fields, err error) {
	f.NoDraft = len(names) > 0
	for _, name := range names {
		switch name {
		case "draft":
			f.NoDraft = false
		case "x-ratelimit":
			f.Legacy = httplimit.LegacySeconds
		case "x-ratelimit-epoch":
			f.Legacy = httplimit.LegacyEpoch
		case "x-should-retry":
			f.NoRetryBeyond = httplimit.DefaultNoRetryBeyond
		default:
			return f, headgate.Invalid("auth_headers",
				"%.100q is none of draft, x-ratelimit, x-ratelimit-epoch and x-should-retry", name)
		}
	}
	return f, nil
}

// write writes the fields of a decision, without those that say when to retry.
func (f *Fields) write(h http.Header, d *headgate.Decision, limits []headgate.Limit) {
	httplimit.SetHeader(h, d, limits...)
	if f.NoDraft {
		delete(h, "Ratelimit")
		delete(h, "Ratelimit-Policy")
	}
	httplimit.SetLegacyHeader(h, d, f.Legacy)
}
