package httplimit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/outgoing"
)

// Backoff describes an answer of a server and how long it asks to hold back.
type Backoff struct {
	Key    string
	Status int           // status of the answer
	Field  string        // field that asks to hold back, as "Retry-After"; empty if no field does
	For    time.Duration // how long from the arrival of the answer, within the Observer's bound; 0 if no field asks
	// Err is set if the store could not be reached, or had not answered when the request's
	// context ended. Then other replicas may not hold back.
	Err error
}

// Observer blocks keys in the store when a response asks to hold back, for programs that do not send their requests
// through a [RoundTripper]. The block holds for all replicas that share the store. An Observer is created with
// [NewObserver] and is safe for concurrent use.
type Observer struct {
	holder  *outgoing.Holder
	maxHold time.Duration
}

// NewObserver returns an observer that blocks a key for at most maxRetryAfter after each answer; zero:
// [DefaultMaxRetryAfter].
func NewObserver(l headgate.Operator, maxRetryAfter time.Duration) *Observer {
	maxHold := cmp.Or(max(maxRetryAfter, 0), DefaultMaxRetryAfter)
	return &Observer{holder: outgoing.NewHolder(l), maxHold: min(maxHold, outgoing.MaxBlock)}
}

// Observe blocks a key of a limit if a response with this status and header asks to hold back, unless the key is
// already blocked for longer. Delays count from the call. A response without such a field blocks nothing, whatever its
// status. Names in h must be canonical, see [http.CanonicalHeaderKey].
func (o *Observer) Observe(ctx context.Context, limit headgate.Limit, key string, status int, h http.Header) Backoff {
	b, _ := o.observe(ctx, limit, key, status, h)
	return b
}

// observe blocks the key if the answer asks to hold back. It also returns until when: zero if the answer does not ask.
func (o *Observer) observe(ctx context.Context, limit headgate.Limit, key string, status int, fields http.Header) (
	b Backoff, end time.Time,
) {
	arrivedAt := time.Now() //nolint:forbidigo // the delay counts from the receipt of the answer
	b = Backoff{Key: key, Status: status}
	if b.For, b.Field = holdOf(status, fields, arrivedAt); b.For <= 0 {
		return Backoff{Key: key, Status: status}, time.Time{}
	}
	b.For = min(b.For, o.maxHold)
	end = arrivedAt.Add(b.For)
	reason := fmt.Sprintf("the server answered %d: %s", status, b.Field)
	b.Err = wrapError(o.holder.Hold(ctx, limit, key, end, reason))
	return b, end
}

// backOff blocks the key if an answer asks to hold back, and calls OnBackoff. It returns the end of the hold, or zero.
func (t *RoundTripper) backOff(ctx context.Context, key string, resp *http.Response) (end time.Time) {
	b, end := t.observer.observe(ctx, t.limit, key, resp.StatusCode, resp.Header)
	if !end.IsZero() && t.cfg.OnBackoff != nil {
		t.cfg.OnBackoff(b)
	}
	return end
}
