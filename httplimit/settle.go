package httplimit

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"net/http"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/law"
)

// Response is what a handler has answered, when it has returned.
type Response struct {
	Request *http.Request
	Status  int         // 200 if the handler wrote nothing, and 500 if it panicked before it wrote
	Header  http.Header // as it was sent, or will be
	Written int64       // bytes of the body
	Gone    bool        // the context of the request had ended: mostly, the client has gone
}

// SettleFunc says what a request has cost in the end.
type SettleFunc func(*Response) (headgate.Cost, error)

// SettleByHeader takes the cost from a header of the answer. Without it the charge stays as it is.
func SettleByHeader(name string) SettleFunc {
	return func(r *Response) (headgate.Cost, error) { return headerCost(name, r.Header) }
}

// idOf returns the id under which the store knows a request.
func idOf(id string, charges []headgate.Charge) string {
	parts := []string{"http", id}
	for _, c := range charges {
		parts = append(parts, c.Key)
	}
	if id = httpkey.Join(parts...); len(id) <= law.MaxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "http-sha256:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// decide asks for a decision.
func (m *middleware) decide(ctx context.Context, c *charged) (err error) {
	switch {
	case m.cfg.Mode == Advise:
		c.decision, err = m.limiter.Check(ctx, c.charges...)
	default:
		c.decision, err = m.limiter.Take(ctx, c.charges...)
	}
	return err
}

func (m *middleware) pass(next http.Handler, w http.ResponseWriter, r *http.Request, _ *charged) {
	next.ServeHTTP(w, r)
}
