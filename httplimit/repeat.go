package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"
)

// What is read of an answer that is not returned, so that its connection can be
// used again, and for how long.
const (
	discardMost   = 64 << 10
	discardWithin = time.Second
)

// allowsRetry reports whether an answer with that status and a retry-after
// means that the request was not done. (GitHub answers 403.)
func allowsRetry(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == http.StatusForbidden
}

// repeatable reports whether a request may be sent again, and can be.
func repeatable(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// The names, and that their presence counts, are those of net/http.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := req.Header[name]; ok {
			return true
		}
	}
	return false
}

// repeat returns a request that can be sent after req was.
func repeat(req *http.Request) (*http.Request, error) {
	again := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	return again, nil
}

// patient reports whether a request may wait until end.
func (t *RoundTripper) patient(ctx context.Context, end time.Time) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		return false
	}
	return ctx.Err() == nil && time.Until(end) <= t.cfg.MaxWait
}

// closeBody closes the body of a request that will not be sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // nothing was sent of it
	}
}

// discard reads what is left of an answer, within bounds, and closes it.
func discard(body io.ReadCloser) {
	slow := time.AfterFunc(discardWithin, func() { _ = body.Close() })
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, body, discardMost) // else its connection is closed
	_ = body.Close()
}
