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
	// Methods lists what is charged: the full names of methods, such as "/pkg.Service/Method", and the names
	// of services with a slash at the end, such as "/pkg.Service/". Empty: all but health and reflection.
	Methods []string
	Limit   headgate.Limit
	// LimitFor chooses the limit of a call, such as the limit of the customer's tier, instead of Limit. The zero
	// Limit leaves this charge out. Errors end the call like the errors of Key.
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

// ServerConfig says what a Server charges, and how it answers. Charges is required; every other field may be zero.
//
// Functions are called by the goroutine of each call, so they have to be safe for concurrent use.
type ServerConfig struct {
	// Charges are of all methods. Those of a call that starts, or of one message, are admitted all or none.
	Charges []Charge
	// Mode is the effect of a decision: httplimit.Shadow charges and serves every call,
	// and httplimit.Advise charges nothing and serves every call. Zero: httplimit.Enforce.
	Mode httplimit.Mode
	// Skip reports whether a call is served without any limit. It is called when a stream starts. Nil: no call is.
	Skip func(*Call) bool
	// FailOpen serves calls, without metadata, while the store is away. False: they end with UNAVAILABLE. A call
	// whose client has gone is never served.
	FailOpen bool
	// NoRetryBeyond is the longest wait for which a client with a retry policy sleeps before it sends a refused call
	// again. A call that has to wait for longer, or can never pass, is not sent again. Zero:
	// httplimit.DefaultNoRetryBeyond, a minute.
	NoRetryBeyond time.Duration
	// NoFields leaves ratelimit and ratelimit-policy out of the metadata. The field retry-after stays.
	NoFields bool

	// OnDecision is called with every decision before the call is served or refused. Nil: with Shadow and Advise,
	// Logger gets the refusals.
	OnDecision func(*Call, *headgate.Decision)
	// OnError receives errors that are not the client's, such as an unreachable store or an unknown limit. With Shadow
	// and Advise it also receives errors of the client's. Nil: Logger gets the errors.
	OnError func(*Call, error)
	// Logger gets at most one line a second of each kind. Nil: slog.Default().
	Logger *slog.Logger
}

// Server has the interceptors of a gRPC server. Put all charges in one Server: several Servers each add fields to
// the metadata, and the charges of an outer Server remain when an inner one refuses. A Server is safe for
// concurrent use and is created with [NewServer].
type Server struct {
	limiter        headgate.Taker
	cfg            ServerConfig
	startCharges   []Charge // charged once, when a stream starts
	messageCharges []Charge // charged for each message of a stream
	logger         *slog.Logger
}

// NewServer returns a Server that charges each call before it is served. Errors are headgate.ErrInvalid and name the
// field.
//
// A call without a valid key or cost ends with INVALID_ARGUMENT and a google.rpc.BadRequest, and charges
// nothing. A call that exceeds a limit ends with RESOURCE_EXHAUSTED. If the store is away, a call ends with
// UNAVAILABLE if nothing was charged, and with UNKNOWN if that is uncertain; the text says which. A message that
// cannot be charged ends its stream in the same way.
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
			s.messageCharges = append(s.messageCharges, c)
		} else {
			s.startCharges = append(s.startCharges, c)
		}
	}
	s.logger = slog.New(lograte.New(cmp.Or(cfg.Logger, slog.Default()).Handler()))
	return s, nil
}

// check returns an error for the first field that is wrong.
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
// RESOURCE_EXHAUSTED. It panics if a parameter is wrong, as [regexp.MustCompile] does: it is for constant
// parameters. [NewServer] returns an error instead, and has more options.
func UnaryServer(l headgate.Taker, limit headgate.Limit, key KeyFunc) grpc.UnaryServerInterceptor {
	return mustServer(l, limit, key).Unary
}

// StreamServer returns an interceptor that charges each stream once, when it starts: see [UnaryServer].
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
