package httplimit

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lograte"
)

// HandlerLimiter has the methods that a handler calls. A [headgate.Limiter] implements it, and so does the
// client of a server.
type HandlerLimiter interface {
	headgate.Taker
	headgate.Reserver
	headgate.Settler
}

// Mode is the effect of a decision.
type Mode uint8

const (
	// Enforce charges requests, and refuses those that exceed a limit.
	Enforce Mode = iota
	// Shadow charges and decides, but serves every request, and adds no fields to the answer: it shows
	// what a limit would do. If nothing can be decided, the request is served.
	Shadow
	// Advise charges nothing and serves every request. RateLimit and RateLimit-Policy say what the
	// decision would be. If nothing can be decided, the request is served without these fields.
	Advise
)

// Charge charges a request to a limit.
type Charge struct {
	// Limit should have a name ([headgate.ParseNamed]): handlers whose limits have the same notation and no name
	// count each other's requests, of which Logger gets a warning, and a changed notation starts counting afresh.
	Limit headgate.Limit
	// LimitFor chooses the limit of a request, such as the limit of the customer's tier, instead of
	// Limit. The zero Limit leaves this charge out. Errors are answered like the errors of Key.
	LimitFor func(*http.Request) (headgate.Limit, error)
	// Key returns the key of a request.
	Key KeyFunc
	// Cost says how much is charged. Nil: 1. A cost of headgate.Units(0) leaves this charge out.
	Cost CostFunc
	// Keep is how much of the limit has to be free after the charge. Zero: nothing.
	Keep headgate.Headroom
	// Settle returns the actual cost when the handler has returned. The charge is corrected to this
	// cost, below or above Cost, also beyond the capacity. The zero Cost leaves the charge as it is,
	// and so does an error, which is passed to OnError. Nil: Cost is final.
	Settle SettleFunc
}

// HandlerConfig says what a handler charges, and how it answers. Charges is required; every other field may be zero.
//
// Functions are called by the goroutine of each request, so they have to be safe for concurrent use.
type HandlerConfig struct {
	// Charges are admitted all or none.
	Charges []Charge
	// Mode is the effect of a decision. Zero: Enforce.
	Mode Mode
	// Skip reports whether a request is served without any limit. Nil: no request is.
	Skip func(*http.Request) bool

	// FailOpen serves requests, without RateLimit fields, while the store is away. False: they are
	// answered with status 503. A request whose client has gone is never served.
	FailOpen bool

	// OnlyFailures charges only the requests that fail. A request counts while it is served, so that many at the same
	// time cannot pass the limit. If the limit has a block, the failure that fills the limit blocks the key; a refusal
	// does not. OnlyFailures needs limits by sliding-log or sliding-window: with other algorithms the return rule gives
	// back too little. A limit that is given by name is checked with each request: if the catalog defines it by another
	// algorithm, nothing is charged, the answer has status 500, and OnError is called.
	OnlyFailures bool
	// RefundFailures gives back the charges of requests that fail, as much of them as the return rule of
	// the limit lets it.
	RefundFailures bool
	// Failed reports whether a request has failed. Nil: with OnlyFailures, if the status is 400 or above, or the
	// handler wrote no status, so a handler has to write the status of a success; with RefundFailures, if the status is
	// 500 or above and the client is still there: otherwise a client could get its charges back by leaving early.
	Failed func(*Response) bool

	// ID returns the idempotency key of a request, "" for none: requests of one id and equal keys are
	// charged once within Life. The keys of the charges are part of the id, so clients of different
	// keys do not share an id. Nil: requests have no ids. An Idempotency-Key header is not read
	// unless ID does so: otherwise a client could switch the limit off by repeating its value.
	ID func(*http.Request) (string, error)
	// Life is for how long the store remembers ids. Charges of a request that takes longer are not settled
	// or given back. Zero: headgate.DefaultLife.
	Life time.Duration
	// ServeReplays serves a request whose id was charged before. False: it is answered with status 409.
	ServeReplays bool

	// Status of a refusal. Zero: 429.
	Status int
	// Refuse answers a request that was refused, instead of [WriteRefusal] with Status, and instead of the answers in
	// the protocols of gRPC and Connect. The fields of [SetHeader] and [SetRetryAfter] are in the header already.
	Refuse func(http.ResponseWriter, *http.Request, *headgate.Decision)
	// NoRetryBeyond is for clients of language models: a refused request that has to wait for longer, or can never
	// pass, is answered with X-Should-Retry: false, so clients do not send it again. [DefaultNoRetryBeyond] is a good
	// choice. Zero: the field is not written, and these clients ignore a longer Retry-After, or sleep for that long.
	NoRetryBeyond time.Duration
	// NoFields leaves RateLimit and RateLimit-Policy out. Retry-After stays.
	NoFields bool
	// Legacy adds the old X-RateLimit fields. Zero: NoLegacy.
	Legacy Style

	// OnDecision is called with every decision before the request is served or refused. Nil: with Shadow and
	// Advise, Logger gets the refusals.
	OnDecision func(*http.Request, *headgate.Decision)
	// OnError is called with every error that is not the client's: the store is away, a charge could not
	// be settled, a limit is unknown. With Shadow and Advise it is also called with errors of the client's. Nil:
	// Logger gets the errors.
	OnError func(*http.Request, error)
	// Logger gets at most one line a second of each kind. Nil: slog.Default().
	Logger *slog.Logger
}

// Handler returns middleware that charges each request to a limit, and answers those that exceed it
// with status 429. It panics if a parameter is wrong, as [regexp.MustCompile] does: it is for constant
// parameters. [NewHandler] returns an error instead, and has more options.
func Handler(l HandlerLimiter, limit headgate.Limit, key KeyFunc) func(http.Handler) http.Handler {
	wrap, err := NewHandler(l, HandlerConfig{Charges: []Charge{{Limit: limit, Key: key}}})
	if err != nil {
		panic(err.Error())
	}
	return wrap
}

// NewHandler returns middleware that charges each request before it is served. Errors are
// headgate.ErrInvalid and name the field.
//
// A request without a valid key, cost or id is answered with status 400, or 413 if its
// body is too long, and charges nothing. A request that exceeds a limit is answered with status 429, with
// Retry-After and a problem of RFC 9457; a call of gRPC, gRPC-Web or Connect ends with the code
// resource_exhausted in its own protocol. Answers have the fields of [SetHeader]. Of several
// middlewares around one handler only the innermost one's fields remain, so put all charges in one middleware.
//
// Charges are corrected (OnlyFailures, RefundFailures, Settle) after the handler, also if it panics, and
// before the end of the answer is sent. The middleware gives up after 5 s.
func NewHandler(l HandlerLimiter, cfg HandlerConfig) (func(http.Handler) http.Handler, error) {
	if err := cfg.check(l); err != nil {
		return nil, err
	}
	m := &middleware{limiter: l, cfg: cfg}
	for _, c := range cfg.Charges {
		m.settles = m.settles || c.Settle != nil
	}
	m.cfg.Status = cmp.Or(cfg.Status, http.StatusTooManyRequests)
	logger := cmp.Or(cfg.Logger, slog.Default())
	warnUnnamed(logger, l, cfg.Charges)
	m.logger = slog.New(lograte.New(logger.Handler()))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(next, w, r) })
	}, nil
}

// check returns an error for the first field that is wrong.
func (c *HandlerConfig) check(l HandlerLimiter) error {
	switch {
	case l == nil:
		return invalid("limiter", "is missing")
	case len(c.Charges) == 0:
		return invalid("Charges", "there is none")
	case c.Mode > Advise:
		return invalid("Mode", "%d is not a mode", c.Mode)
	case c.OnlyFailures && c.RefundFailures:
		return invalid("RefundFailures", "contradicts OnlyFailures: one takes back failures, the other one successes")
	case c.OnlyFailures && c.ID != nil:
		return invalid("ID", "does not go with OnlyFailures")
	case c.Life < 0:
		return invalid("Life", "%s is negative", c.Life)
	case c.Status != 0 && (c.Status < 400 || c.Status > 599):
		return invalid("Status", "%d is not the status of a refusal", c.Status)
	case c.NoRetryBeyond < 0:
		return invalid("NoRetryBeyond", "%s is negative", c.NoRetryBeyond)
	case c.Legacy > LegacyEpoch:
		return invalid("Legacy", "%d is not a style", c.Legacy)
	}
	for i := range c.Charges {
		if err := c.checkCharge(&c.Charges[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkCharge returns an error for the first field of a charge that is wrong.
func (c *HandlerConfig) checkCharge(charge *Charge) error {
	limit := charge.Limit
	switch {
	case limit.IsZero() && charge.LimitFor == nil:
		return invalid("Limit", "is missing")
	case !limit.IsZero() && charge.LimitFor != nil:
		return invalid("LimitFor", "does not go with Limit: one of them says which limit it is")
	case limit.Concurrency():
		return invalid("Limit", "%s is acquired and released, not taken", limit)
	case charge.Key == nil:
		return invalid("Key", "is missing")
	case c.OnlyFailures && charge.Settle != nil:
		return invalid("Settle", "does not go with OnlyFailures")
	case c.OnlyFailures && !charge.Keep.IsZero():
		return invalid("Keep", "does not go with OnlyFailures: a failure that leaves headroom never fills the limit, "+
			"so it would block nothing")
	case c.OnlyFailures && !limit.IsZero() && !refundable(limit):
		return invalid("OnlyFailures", "needs sliding-log or sliding-window: %s does not give back all that a success "+
			"was charged", limit)
	}
	if _, err := charge.Keep.MarshalText(); err != nil {
		return invalid("Keep", "%v", err)
	}
	return nil
}

// refundable reports whether a limit may fit OnlyFailures. A name alone may: rejectUnfit decides it at each request.
func refundable(limit headgate.Limit) bool { return limit.Refundable() || limit.OnlyName() }
