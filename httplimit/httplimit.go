package httplimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/outgoing"
	"github.com/headgate/headgate/internal/pause"
)

// DefaultMaxRetryAfter is the longest time for which one answer can block a key, unless [NewObserver] is given another.
const DefaultMaxRetryAfter = time.Hour

// Config adjusts a RoundTripper. It may be nil, and every field may be zero.
type Config struct {
	// Next sends the requests. Nil: http.DefaultTransport.
	Next http.RoundTripper
	// Key returns the key of a request. Nil: HostKey.
	Key func(*http.Request) string
	// Cost returns the cost of a request. Nil: 1.
	Cost func(*http.Request) headgate.Cost
	// MaxWait is how long a request waits at most, each time before it is sent; headgate.Never: until its context ends.
	// A request that would have to wait longer, or beyond its context's deadline, fails at once with an error that is
	// headgate.ErrDeadline and a headgate.DeniedError. Zero: requests do not wait, and a refused one fails with a
	// headgate.DeniedError.
	MaxWait time.Duration
	// Retries is how often a request is sent again, at most, after an answer of 429, 503 or 403 that says when to
	// retry. It needs MaxWait: an answer whose time is further off, or beyond the deadline, is returned as it is. A
	// request is sent again only if it is idempotent, by its method or by an Idempotency-Key, and has no body or a
	// GetBody. Zero: requests are sent once.
	Retries int
	// OnBackoff is called for every answer that asks to hold back, after the block was stored or could not be,
	// by the goroutine of the request. It may be nil.
	OnBackoff func(Backoff)
}

// RoundTripper sends requests when a limit admits them. It is safe for concurrent use. After an answer that asks to
// hold back, a goroutine stores the block. The request waits for the goroutine until its context ends, and the
// goroutine gives up after 5 s.
type RoundTripper struct {
	limiter  Limiter
	limit    headgate.Limit
	cfg      Config
	observer *Observer
}

var _ http.RoundTripper = (*RoundTripper)(nil)

// Limiter has the methods that a RoundTripper calls. A [headgate.Limiter] implements it, and so does the
// client of a server.
type Limiter interface {
	headgate.Taker
	headgate.Waiter
	headgate.Reserver
	headgate.Operator
}

// New returns a RoundTripper that charges requests to a limit.
func New(l Limiter, limit headgate.Limit, cfg *Config) (*RoundTripper, error) {
	t := &RoundTripper{limiter: l, limit: limit, cfg: *cmp.Or(cfg, &Config{})}
	c := &t.cfg
	c.Next = cmp.Or(c.Next, http.DefaultTransport)
	if c.Key == nil {
		c.Key = HostKey
	}
	if c.Cost == nil {
		c.Cost = func(*http.Request) headgate.Cost { return headgate.Cost{} }
	}
	switch {
	case l == nil:
		return nil, errors.New("httplimit: the limiter is missing")
	case limit.IsZero():
		return nil, invalid("limit", "is missing")
	case limit.Concurrency():
		return nil, invalid("limit", "%s is acquired and released, not taken", limit)
	case c.MaxWait < 0:
		return nil, invalid("MaxWait", "%s is negative", c.MaxWait)
	case c.Retries < 0:
		return nil, invalid("Retries", "%d is negative", c.Retries)
	case c.Retries > 0 && c.MaxWait == 0:
		return nil, invalid("Retries", "needs MaxWait: to send again is to wait")
	}
	t.observer = NewObserver(l, 0)
	return t, nil
}

func wrapError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("httplimit: %w", err)
}

func invalid(field, format string, args ...any) error {
	return fmt.Errorf("httplimit: %w", headgate.Invalid(field, format, args...))
}

// HostKey returns the host that a request goes to, in lower case, with its port if that is not the scheme's own.
func HostKey(req *http.Request) string {
	u := req.URL
	if u == nil {
		return ""
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	switch scheme := strings.ToLower(u.Scheme); {
	case port == "", scheme == "http" && port == "80", scheme == "https" && port == "443":
		return host
	}
	return net.JoinHostPort(host, port)
}

// RoundTrip implements http.RoundTripper.
func (t *RoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	charge := headgate.Charge{Limit: t.limit, Key: t.cfg.Key(req), Cost: t.cfg.Cost(req)}
	retries := 0
	if canRepeat(req) {
		retries = t.cfg.Retries
	}
	current := req
	for ; ; retries-- {
		if err := t.admit(ctx, charge); err != nil {
			closeBody(current)
			return nil, err
		}
		resp, err := t.cfg.Next.RoundTrip(current)
		if err != nil || resp == nil {
			return resp, err
		}
		end := t.backOff(ctx, charge.Key, resp)
		if retries == 0 || !isRetryStatus(resp.StatusCode) || end.IsZero() || !t.mayWaitUntil(ctx, end) {
			return resp, nil
		}
		next, err := repeat(req)
		if err != nil {
			return resp, nil //nolint:nilerr // the answer is worth more to the caller than the error of GetBody
		}
		discard(resp.Body)
		current = next
		// Charging the request again waits for the block too, unless the store could not be
		// reached, or the block was lifted.
		if err := pause.Sleep(ctx, time.Until(end)); err != nil {
			closeBody(current)
			return nil, err
		}
	}
}

// admit waits until a request may be sent. An ended context is returned as it is, since net/http compares that error.
func (t *RoundTripper) admit(ctx context.Context, c headgate.Charge) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return wrapError(outgoing.Admit(ctx, t.limiter, t.cfg.MaxWait, c))
}

// CloseIdleConnections closes the idle connections of Next, for [http.Client.CloseIdleConnections].
func (t *RoundTripper) CloseIdleConnections() {
	if c, ok := t.cfg.Next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
