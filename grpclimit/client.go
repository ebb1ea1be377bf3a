package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/outgoing"
)

// ClientConfig adjusts a Client. It may be nil, and every field may be zero.
//
// Functions are called by the goroutine of each call, so they have to be safe for concurrent use.
type ClientConfig struct {
	// Methods lists what is charged, in the form of [Charge].Methods. Empty: all but health and reflection.
	Methods []string
	// Key returns the key of a call. Nil: ByTarget.
	Key KeyFunc
	// Cost returns the cost of a call. Nil: 1. A call that costs headgate.Units(0) is sent at once.
	Cost CostFunc
	// MaxWait is how long a call waits at most. A call that would have to wait longer, or beyond the deadline of its
	// context, is not sent, and ends at once with RESOURCE_EXHAUSTED. Zero: calls wait until their context ends.
	// Below 0: no call waits.
	MaxWait time.Duration
	// OnBackoff is called for every status that asks to hold back, after the block was stored or could not be, by the
	// goroutine that received the status. It may be nil.
	OnBackoff func(Backoff)
}

// Backoff describes a status of a server that asks to hold back.
type Backoff struct {
	Method string        // full name of the method that was called
	Key    string        // key that is blocked
	Code   codes.Code    // code of the status
	For    time.Duration // how long from the arrival of the status, at most httplimit.DefaultMaxRetryAfter
	// Err is set if the store could not be reached, or had not answered when the call's context ended. Then other
	// replicas may not hold back.
	Err error
}

// Client has the interceptors of a gRPC client. It is safe for concurrent use. After a status that asks to hold back,
// a goroutine stores the block. The call waits for the goroutine until its context ends, and the goroutine gives up
// after 5 s. A Client is created with [NewClient].
type Client struct {
	limiter httplimit.Limiter
	limit   headgate.Limit
	cfg     ClientConfig
	holder  *outgoing.Holder
}

// NewClient returns a Client that charges each call to a limit before it is sent. Errors are headgate.ErrInvalid and
// name the field.
//
// A call that is not sent ends with a status: RESOURCE_EXHAUSTED, with the details of a refusal by a [Server], if the
// limit has no room in time; the code of its context if the context ends while the call waits; INVALID_ARGUMENT or
// INTERNAL if Key or Cost fails; UNAVAILABLE if the store is away and nothing was charged, and UNKNOWN if it is not
// known whether anything was charged. errors.Is and errors.As find the cause, such as a [headgate.DeniedError].
func NewClient(l httplimit.Limiter, limit headgate.Limit, cfg *ClientConfig) (*Client, error) {
	if l == nil {
		return nil, invalid("limiter", "is missing")
	}
	c := &Client{limiter: l, limit: limit, cfg: *cmp.Or(cfg, &ClientConfig{}), holder: outgoing.NewHolder(l)}
	if c.cfg.Key == nil {
		c.cfg.Key = ByTarget
	}
	c.cfg.MaxWait = max(0, cmp.Or(c.cfg.MaxWait, headgate.Never))
	if err := cmp.Or(checkLimit(limit), checkMethods(c.cfg.Methods)); err != nil {
		return nil, err
	}
	return c, nil
}

// UnaryClient returns an interceptor that charges each unary call to a limit before it is sent, and waits for room
// until the deadline of the call's context. It panics if a parameter is wrong, as [regexp.MustCompile] does: it is for
// constant parameters. A nil key is [ByTarget]. [NewClient] returns an error instead, and has more options.
func UnaryClient(l httplimit.Limiter, limit headgate.Limit, key KeyFunc) grpc.UnaryClientInterceptor {
	return mustClient(l, limit, key).Unary
}

// StreamClient returns an interceptor that charges each stream once, before it is opened: see [UnaryClient].
func StreamClient(l httplimit.Limiter, limit headgate.Limit, key KeyFunc) grpc.StreamClientInterceptor {
	return mustClient(l, limit, key).Stream
}

func mustClient(l httplimit.Limiter, limit headgate.Limit, key KeyFunc) *Client {
	c, err := NewClient(l, limit, &ClientConfig{Key: key})
	if err != nil {
		panic(err.Error())
	}
	return c
}

// Unary implements [grpc.UnaryClientInterceptor].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	call := outgoingCall(ctx, method, conn)
	call.Message = req
	key, charged, err := c.admit(call)
	if err != nil {
		return err
	}
	err = invoke(ctx, method, req, reply, conn, opts...)
	if charged {
		c.backOff(call, key, err)
	}
	return err
}

// Stream implements [grpc.StreamClientInterceptor].
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
	open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	call := outgoingCall(ctx, method, conn)
	key, charged, err := c.admit(call)
	if err != nil {
		return nil, err
	}
	stream, err := open(ctx, desc, conn, method, opts...)
	if !charged {
		return stream, err
	}
	if err != nil {
		c.backOff(call, key, err)
		return nil, err
	}
	return &backoffStream{ClientStream: stream, client: c, call: call, key: key}, nil
}

// backoffStream blocks the key if its stream ends with a status that asks to hold back.
type backoffStream struct {
	grpc.ClientStream
	client *Client
	call   *Call
	key    string
}

func (s *backoffStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.client.backOff(s.call, s.key, err)
	return err
}

func outgoingCall(ctx context.Context, method string, conn *grpc.ClientConn) *Call {
	call := &Call{Context: ctx, Method: method}
	call.Metadata, _ = metadata.FromOutgoingContext(ctx)
	if conn != nil {
		call.Target = conn.Target()
	}
	return call
}

// admit waits until a call may be sent. It returns the key, and whether it was charged.
func (c *Client) admit(call *Call) (key string, charged bool, err error) {
	if !selectsMethod(c.cfg.Methods, call.Method) {
		return "", false, nil
	}
	key, cost, err := keyAndCost(call, c.cfg.Key, c.cfg.Cost)
	switch {
	case err != nil && httpkey.IsClientError(err):
		return "", false, clientFailure(err)
	case err != nil:
		return "", false, withCause(internalFailure(err))
	case cost == headgate.Units(0):
		return "", false, nil
	}
	if err := call.Context.Err(); err != nil {
		return "", false, status.FromContextError(err).Err()
	}
	err = outgoing.Admit(call.Context, c.limiter, c.cfg.MaxWait, headgate.Charge{Limit: c.limit, Key: key, Cost: cost})
	if err != nil {
		return "", false, notSent(call.Context, err)
	}
	return key, true, nil
}

// notSent returns the status of a call that was not admitted, as an error.
func notSent(ctx context.Context, err error) error {
	if denied, ok := errors.AsType[*headgate.DeniedError](err); ok {
		return refusal("the call", &denied.Decision, err)
	}
	switch {
	case errors.Is(err, headgate.ErrDeadline):
		const text = "The call cannot start before its deadline, and was not sent."
		return &failure{status: status.New(codes.ResourceExhausted, text), cause: err}
	case httpkey.IsClientError(err):
		return clientFailure(err)
	case errors.Is(err, headgate.ErrUnsupported):
		return withCause(internalFailure(err))
	}
	return withCause(undecidedFailure(ctx, err))
}

// withCause makes the text of a failure name the cause.
func withCause(f *failure) *failure {
	f.namesCause = true
	return f
}
