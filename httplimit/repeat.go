package httplimit

import (
	"context"
	"io"
	"net/http"
	"time"
)

// A body that is not returned is read up to maxDiscardBytes, for at most discardTimeout, so that its connection
// can be used again.
const (
	maxDiscardBytes = 64 << 10
	discardTimeout  = time.Second
)

// isRetryStatus reports whether a status, with a Retry-After beside it,
// means that the server has not processed the request. (GitHub answers 403.)
func isRetryStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable ||
		status == http.StatusForbidden
}

// canRepeat reports whether a request is idempotent and its body can be read again.
func canRepeat(req *http.Request) bool {
	if req.Body != nil && req.Body != http.NoBody && req.GetBody == nil {
		return false
	}
	switch req.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete:
		return true
	}
	// As in net/http, the presence of one of these headers is enough.
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if _, ok := req.Header[name]; ok {
			return true
		}
	}
	return false
}

// repeat returns a copy of a request that was sent, with a fresh body.
func repeat(req *http.Request) (*http.Request, error) {
	copied := req.Clone(req.Context())
	if req.Body != nil && req.Body != http.NoBody {
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		copied.Body = body
	}
	return copied, nil
}

// mayWaitUntil reports whether end is within MaxWait and the context's deadline.
func (t *RoundTripper) mayWaitUntil(ctx context.Context, end time.Time) bool {
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		return false
	}
	return ctx.Err() == nil && time.Until(end) <= t.cfg.MaxWait
}

// closeBody closes the body of a request that will not be sent.
func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close() // its error does not matter: nothing was sent
	}
}

// discard reads the rest of a body, within bounds, and closes it.
func discard(body io.ReadCloser) {
	timer := time.AfterFunc(discardTimeout, func() { _ = body.Close() })
	defer timer.Stop()
	_, _ = io.CopyN(io.Discard, body, maxDiscardBytes) // a body that is not read to its end costs the connection
	_ = body.Close()
}
