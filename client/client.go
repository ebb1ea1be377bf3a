// Package client calls a headgate server, from many goroutines at once.
//
// A Client has the verbs of [headgate.Limiter], with the same charges: a program moves from a store of its own to a
// server by changing only the constructor. A program can depend on [headgate.Taker], [headgate.Waiter] and the other
// interfaces of package headgate.
//
// The URL says whether a Client speaks JSON over HTTP or gRPC, see [New]. Verbs, charges and errors are the same.
// Over gRPC each call, and each batch, is a unary call.
//
// A call costs about the same with one request as with hundreds, so callers share calls: while one batch is under way,
// new requests join the next batch. There is no timer: a lone request is sent at once. A few connections are kept
// alive, each with one batch under way at most.
//
// A refusal is a decision, not an error. errors.Is finds these errors: headgate.ErrInvalid, the request is invalid;
// store.ErrUnavailable, nothing was charged; store.ErrBusy, too many callers wait, here or at the server, and nothing
// was charged; store.ErrUnknownOutcome, the request may have been charged. No request is sent twice: the caller decides
// whether to retry after an unknown outcome.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/flight"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// Config adjusts a Client. A nil Config, and every zero field, is fine.
type Config struct {
	// HTTPClient sends the requests for URLs of http and https; other URLs do not use it. Its transport must not send a
	// POST again that may have reached the server (http.Transport does not), and should keep as many idle connections
	// as there are Connections. Nil: a new http.Client with proxies from the environment.
	HTTPClient *http.Client
	// TLS is for URLs of grpcs, and for https if HTTPClient is nil. It says which servers the client trusts, and which
	// certificate it shows. Nil: the servers that the system trusts, and no certificate.
	TLS *tls.Config
	// Connections is how many batches may be under way at once. More connections make smaller batches, and so fewer
	// decisions for the same work. Over gRPC all batches share one connection. Zero: 2.
	Connections int
	// Timeout bounds a call to the server, since the context of one caller does not end a shared call. Over gRPC the
	// server gets the deadline. Zero: 10 s.
	Timeout time.Duration
	// Token is sent to the server, in Authorization: Bearer. Ids belong to a token: a client with another token
	// cannot settle what was charged under an id. Empty: no token.
	Token string

	maxWaiting int // for tests; 0: the constant maxWaiting
}

const (
	// maxBatch is how many charges a batch has at most, apart from the charges of the last caller to join. A request
	// with half as many charges or more is sent alone.
	maxBatch = 512
	// maxCallerBytes is how many bytes of limits and keys a request may add to a batch.
	maxCallerBytes = 64 << 10
	// minWaiting is how many charges must wait before a batch is sent while another one is under way.
	minWaiting = 32
	// maxWaiting is how many callers may wait for a batch. Further callers get store.ErrBusy at once.
	maxWaiting = 100_000
)

// Client calls one server. It is safe for concurrent use, and made to be shared: many callers at once share a call.
// While no caller waits, it has no goroutines but those of its connections.
type Client struct {
	cfg       Config
	transport transport
	queue     *flight.Queue[struct{}, *part]
	closed    atomic.Bool
}

var errClosed = fmt.Errorf("server: client: %w", store.ErrClosed)

// New returns a client of the server at a URL. The scheme of the URL names the protocol:
//
//	http://127.0.0.1:8080            JSON over HTTP; http:// may be left out
//	https://limits.example.com       JSON over HTTP, encrypted
//	unix:/run/headgate.sock          JSON over HTTP, on a Unix socket
//	grpc://127.0.0.1:8081            gRPC, the address of `headgate serve --grpc`
//	grpcs://limits.example.com:443   gRPC, encrypted
//	grpc+unix:/run/headgate.sock     gRPC, on a Unix socket
//
// A URL of gRPC needs a port, and has no path. The first call connects. Errors are headgate.ErrInvalid.
func New(baseURL string, cfg *Config) (*Client, error) {
	c := &Client{cfg: *cmp.Or(cfg, &Config{})}
	c.cfg.Connections = cmp.Or(max(c.cfg.Connections, 0), 2)
	c.cfg.Timeout = cmp.Or(max(c.cfg.Timeout, 0), 10*time.Second)
	c.cfg.maxWaiting = cmp.Or(c.cfg.maxWaiting, maxWaiting)
	var err error
	if c.transport, err = newTransport(baseURL, &c.cfg); err != nil {
		return nil, err
	}
	c.queue = flight.New(flight.Config[struct{}, *part]{
		MaxFlights: c.cfg.Connections, MinSize: minWaiting, MaxSize: maxBatch, MaxWaiting: c.cfg.maxWaiting,
		New: func() *part { return &part{maxCharges: maxBatch} },
		Fly: c.sendBatch, Land: func([]*flight.Passenger[struct{}, *part], error) {},
	})
	return c, nil
}

// Allow takes one unit of a limit for a key.
//
// The server looks the limit up by its name ([headgate.Named] is enough), or parses its notation if it accepts
// notations.
func (c *Client) Allow(ctx context.Context, limit headgate.Limit, key string) (headgate.Decision, error) {
	return c.Take(ctx, headgate.Charge{Limit: limit, Key: key})
}

// AllowN takes n units of a limit for a key, all or none: see [headgate.Limiter.AllowN].
func (c *Client) AllowN(ctx context.Context, limit headgate.Limit, key string, n int64) (headgate.Decision, error) {
	return c.Take(ctx, headgate.Charge{Limit: limit, Key: key, Cost: headgate.Units(n)})
}

// Take takes all of the charges, or none.
//
// The durations of the decision are whole milliseconds, rounded up. If ctx ends before the request is sent, nothing is
// charged, and the error is the error of ctx. If ctx ends later, the error is also store.ErrUnknownOutcome: the server
// decides and charges the request all the same.
func (c *Client) Take(ctx context.Context, charges ...headgate.Charge) (headgate.Decision, error) {
	return c.decide(ctx, false, charges)
}

// Check reports whether Take would admit the charges now, and takes nothing: Remaining and ResetAfter stay the same.
func (c *Client) Check(ctx context.Context, charges ...headgate.Charge) (headgate.Decision, error) {
	return c.decide(ctx, true, charges)
}

// Close refuses further requests, and returns when the callers that wait for a batch have their answers. Other calls
// under way get their answers too; over gRPC Close waits for these answers. It closes the connections, except those of
// Config.HTTPClient.
func (c *Client) Close() {
	c.closed.Store(true)
	c.queue.Close()
	c.transport.close()
}

// decide takes or checks: in a batch, or in a call of its own if the request is large.
func (c *Client) decide(ctx context.Context, check bool, charges []headgate.Charge) (headgate.Decision, error) {
	if err := ctx.Err(); err != nil {
		return headgate.Decision{}, err
	}
	size, err := checkSize(charges)
	if err != nil {
		return headgate.Decision{}, err
	}
	in := newRequest(charges)
	if 2*len(charges) >= maxBatch || size > maxCallerBytes {
		path := "/v1/take"
		if check {
			path = "/v1/check"
		}
		return c.decideAlone(ctx, path, &in, charges)
	}
	in.Check = check
	p := c.queue.Passenger()
	p.Load.request, p.Load.charges, p.Load.size = in, len(charges), size+maxChargeOverhead*len(charges)
	switch err := c.queue.Lock(); {
	case errors.Is(err, flight.ErrClosed):
		return headgate.Decision{}, errClosed
	case err != nil:
		return headgate.Decision{}, fmt.Errorf("server: %w: as many as may, %d", store.ErrBusy, c.cfg.maxWaiting)
	}
	sent := false
	hasAnswer := p.Wait(ctx, c.queue.Add(p), func(flying bool) { sent = flying })
	switch {
	case !hasAnswer && sent:
		return headgate.Decision{}, fmt.Errorf("server: %w: %w", store.ErrUnknownOutcome, ctx.Err())
	case !hasAnswer:
		return headgate.Decision{}, ctx.Err()
	}
	defer p.Leave()
	if err := p.Err(); err != nil {
		return headgate.Decision{}, err
	}
	if p.Load.answer.Decision == nil {
		return headgate.Decision{}, problemError(p.Load.answer.Problem)
	}
	return newDecision(p.Load.answer.Decision, charges)
}

// checkSize returns the bytes of the limits and keys of charges. It returns an error for charges that would make the
// whole batch fail.
func checkSize(charges []headgate.Charge) (size int, err error) {
	if len(charges) == 0 {
		return 0, headgate.Invalid("charges", "there is none")
	}
	for i := range charges {
		if charges[i].Limit.IsZero() {
			return 0, headgate.Invalid("limit", "is missing")
		}
		if err := law.ValidKey(charges[i].Key); err != nil {
			return 0, err
		}
		if cost := charges[i].Cost; !cost.IsZero() && cost.Float64() <= 0 {
			return 0, headgate.Invalid("cost", "must be above 0")
		}
		if _, err := charges[i].Keep.MarshalText(); err != nil {
			return 0, err
		}
		size += len(charges[i].Limit.Name()) + len(charges[i].Key)
	}
	return size, nil
}
