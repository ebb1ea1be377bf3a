package httplimit

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/headgate/headgate"
)

// The types of problems (RFC 9457) that the Internet-Draft draft-ietf-httpapi-ratelimit-headers registers.
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem is the body of an answer to a request that is not served (RFC 9457).
type Problem struct {
	Type             string   `json:"type,omitempty"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"` // names of limits
}

// WriteRefusal answers a refused request with a status, such as [http.StatusTooManyRequests], and a problem of type
// [QuotaExceeded] that names the limits. Call [SetHeader] and [SetRetryAfter] before, for the headers.
func WriteRefusal(w http.ResponseWriter, d *headgate.Decision, status int) {
	WriteProblem(w, &Problem{
		Type: QuotaExceeded, Title: "Quota exceeded", Status: status,
		Detail:           "The request was refused and has charged nothing. " + whenItCanPass(d),
		ViolatedPolicies: refusingLimits(d),
	})
}

// whenItCanPass returns a sentence that says when a refused request can pass.
func whenItCanPass(d *headgate.Decision) string {
	if d.RetryAfter == headgate.Never {
		return "It can never pass: it costs more than the limit admits at once."
	}
	return fmt.Sprintf("It can pass in %d s.", waitSeconds(d.RetryAfter))
}

// WriteUnavailable answers a request with status 503 and a problem of type [TemporaryReducedCapacity], since the store
// is away and nothing could be decided. It removes the RateLimit fields, as no figures are known.
func WriteUnavailable(w http.ResponseWriter) {
	h := w.Header()
	delete(h, "Ratelimit")
	delete(h, "Ratelimit-Policy")
	h.Set("Retry-After", "1")
	WriteProblem(w, &Problem{
		Type: TemporaryReducedCapacity, Title: "Temporarily unavailable", Status: http.StatusServiceUnavailable,
		Detail: "Limits cannot be checked at the moment.",
	})
}

// WriteProblem answers with a problem, which no cache keeps (RFC 6585).
func WriteProblem(w http.ResponseWriter, p *Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the client may be gone
}
