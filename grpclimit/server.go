package grpclimit

import (
	"cmp"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/lograte"
)

// Charge charges a call to a limit.
type Charge struct {
	// Methods says which calls are charged: by the full name of a method, such as "/pkg.Service/Method", or by that
	// of a service with a slash at its end, such as "/pkg.Service/". Empty: all but those of health and reflection.
	Methods []string
	// Limit is the limit.
	Limit headgate.Limit
	// LimitFor chooses the limit of a call, such as that of the customer's tier, in the place of Limit. The zero
	// Limit leaves this charge out. An error means what one of Key means.
	LimitFor func(*Call) (headgate.Limit, error)
	// Key returns the key of a call.
	Key KeyFunc
	// Cost says how much is charged. Nil: 1. A cost of headgate.Units(0) leaves this charge out.
	Cost CostFunc
	// Keep is how much of the limit has to be free after the charge. Zero: nothing.
	Keep headgate.Headroom
	// PerMessage charges a stream for each message that is received from the client. False: a stream is charged
	// once, when it starts. A unary call has one message, and is charged once in either case.
	PerMessage bool
}

// ServerConfig says what a Server charges, and how it answers. Charges is needed; every other zero field is fine.
//
// The fields that are functions are called by the goroutine of each call, so they have to be safe for concurrent use.
type ServerConfig struct {
	// Charges are those of all methods. A call is charged all that select its method, or none.
	Charges []Charge
	// Mode says what a decision does, as in package httplimit: httplimit.Shadow charges and serves every call,
	// and httplimit.Advise charges nothing and serves every call. Zero: httplimit.Enforce.
	Mode httplimit.Mode
	// Skip reports whether a call is served without any limit. It is called when a stream starts. Nil: none is.
	Skip func(*Call) bool
	// FailOpen serves calls, without metadata, while the store is away. False: they end with UNAVAILABLE. A call
	// whose client has gone is never served.
	FailOpen bool
	// NoRetryBeyond is the longest wait of a refusal after which a client sends the call again by itself, if it has a
	// retry policy; it sleeps until then. A longer one, and a call that can never pass, is not sent again. Zero:
	// httplimit.DefaultNoRetryBeyond, a minute.
	NoRetryBeyond time.Duration
	// NoFields leaves ratelimit and ratelimit-policy out of the metadata. The field retry-after stays.
	NoFields bool

	// OnDecision is called with every decision before the call is served or refused. Nil: with Shadow and Advise, Logger
	// gets those that are refused.
	OnDecision func(*Call, *headgate.Decision)
	// OnError receives errors that are not the client's, such as an unreachable store or an unknown limit. With Shadow
	// and Advise it receives the client's too. Nil: Logger gets them.
	OnError func(*Call, error)
	// Logger gets at most one line a second of each kind. Nil: slog.Default().
	Logger *slog.Logger
}

// Server has the interceptors of a gRPC server. Put all charges in one Server: of several, each adds its fields to
// the metadata, and what the outer ones have charged stays charged when an inner one refuses. It is safe for
// concurrent use. Create one with [NewServer]; the zero Server is of no use.
type Server struct {
	limiter headgate.Taker
	cfg     ServerConfig
	start   []Charge // of a stream, when it starts
	message []Charge // of a stream, for each message
	logger  *slog.Logger
}

// NewServer returns a Server that charges each call before it is served. Errors are headgate.ErrInvalid and name the
// field.
//
// A call of which a key or a cost cannot be had ends with INVALID_ARGUMENT and a google.rpc.BadRequest, and charges
// nothing. One that exceeds a limit ends with RESOURCE_EXHAUSTED. If nothing can be decided, a call ends with
// UNAVAILABLE if nothing was charged, and with UNKNOWN if that is not known; the text says which. The message of a
// stream that cannot be charged ends the stream in the same way.
func NewServer(l headgate.Taker, cfg ServerConfig) (*Server, error) {
	switch {
	case l == nil:
		return nil, invalid("limiter", "is missing")
	case len(cfg.Charges) == 0:
		return nil, invalid("Charges", "there is none")
	case cfg.Mode > httplimit.Advise:
		return nil, invalid("Mode", "%d is not a mode", cfg.Mode)
	case cfg.NoRetryBeyond < 0:
		return nil, invalid("NoRetryBeyond", "%s is negative", cfg.NoRetryBeyond)
	}
	s := &Server{limiter: l, cfg: cfg}
	for _, c := range cfg.Charges {
		if err := c.check(); err != nil {
			return nil, err
		}
		if c.PerMessage {
			s.message = append(s.message, c)
		} else {
			s.start = append(s.start, c)
		}
	}
	s.logger = slog.New(lograte.New(cmp.Or(cfg.Logger, slog.Default()).Handler()))
	return s, nil
}

// check returns what is wrong with a charge.
func (c *Charge) check() error {
	if c.LimitFor == nil {
		if err := checkLimit(c.Limit); err != nil {
			return err
		}
	} else if !c.Limit.IsZero() {
		return invalid("LimitFor", "does not go with Limit: one of them says which limit it is")
	}
	if c.Key == nil {
		return invalid("Key", "is missing")
	}
	if _, err := c.Keep.MarshalText(); err != nil {
		return invalid("Keep", "%v", err)
	}
	return checkMethods(c.Methods)
}

// UnaryServer returns an interceptor that charges each unary call to a limit, and ends those that exceed it with
// RESOURCE_EXHAUSTED. It panics if a parameter is wrong, as [regexp.MustCompile] does: it is for programs that know
// theirs. [NewServer] returns an error, and can do more.
func UnaryServer(l headgate.Taker, limit headgate.Limit, key KeyFunc) grpc.UnaryServerInterceptor {
	return mustServer(l, limit, key).Unary
}

// StreamServer charges each stream once, when it starts: see [UnaryServer].
func StreamServer(l headgate.Taker, limit headgate.Limit, key KeyFunc) grpc.StreamServerInterceptor {
	return mustServer(l, limit, key).Stream
}

func mustServer(l headgate.Taker, limit headgate.Limit, key KeyFunc) *Server {
	s, err := NewServer(l, ServerConfig{Charges: []Charge{{Limit: limit, Key: key}}})
	if err != nil {
		panic(err.Error())
	}
	return s
}
