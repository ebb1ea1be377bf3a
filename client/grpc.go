package client

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/store"
)

// rpcTransport is a transport for gRPC. Each call is a unary call of headgate.v1.HeadgateService, with its own status
// and the deadline of its context. So batches are calls of Batch, not messages of the service's stream.
type rpcTransport struct {
	conn  *grpc.ClientConn
	host  string
	token string

	idle chan struct{} // closed when the transport is closed and its last call has ended

	mu     sync.Mutex
	calls  int  // number of calls under way; guarded by mu
	closed bool // further calls fail; guarded by mu
}

// maxMessage is how many bytes a message to the server may have.
const maxMessage = 4 << 20

// newRPC returns a transport to a host and port, over a Unix socket unless socket is empty.
func newRPC(host, socket string, secure bool, cfg *Config) (*rpcTransport, error) {
	creds, target := insecure.NewCredentials(), "dns:///"+host
	if secure {
		creds = credentials.NewTLS(cfg.TLS) // works for nil too
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithStatsHandler(sendRecorder{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		// No retry policy applies, not even of a name server. grpc sends a call again only if the server has said that
		// it did not process the call.
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		// A call fails at once while a server is away, so the pauses between attempts to connect are short.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 10 * time.Second,
		}),
		// A connection is closed when the server no longer answers pings.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	if socket != "" {
		target = "passthrough:///" + host
		options = append(options, grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialUnix(ctx, socket)
		}))
	}
	conn, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, headgate.Invalid("server", "%v", err)
	}
	return &rpcTransport{conn: conn, host: host, token: cfg.Token, idle: make(chan struct{})}, nil
}

// close implements transport. It waits for the calls under way.
func (t *rpcTransport) close() {
	t.mu.Lock()
	t.closed = true
	waits := t.calls > 0
	t.mu.Unlock()
	if waits {
		sched.Receive(t.idle)
	}
	_ = t.conn.Close() // an error means that it is closed already
}

func (t *rpcTransport) call(ctx context.Context, method, path string, in, out any) error {
	callVerb, ok := verbs[method+" "+path]
	if !ok {
		err := fmt.Errorf("server: %s %s is not asked over gRPC; name the server's http or https address", method, path)
		return &classedError{headgate.ErrUnsupported, err}
	}
	return callVerb(ctx, t, in, out)
}

// begin counts a call as under way. It returns false at once if the transport is closed.
func (t *rpcTransport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.calls++
	return true
}

// end counts a call as ended, and closes idle after the last call.
func (t *rpcTransport) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.calls--; t.closed && t.calls == 0 {
		close(t.idle)
	}
}

func (t *rpcTransport) invoke(ctx context.Context, name string, in, out any) error {
	if !t.begin() {
		return errClosed
	}
	defer t.end()
	if n := proto.Size(in.(proto.Message)); n > maxMessage {
		return headgate.Invalid("body", "has %d bytes, which is more than %d", n, maxMessage)
	}
	sent := new(atomic.Bool)
	ctx = context.WithValue(ctx, sentKey{}, sent)
	if t.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+t.token)
	}
	if err := t.conn.Invoke(ctx, name, in, out); err != nil {
		return t.callError(ctx, sent.Load(), err)
	}
	return nil
}

// nothingDoneCodes are the codes with which something other than a headgate server has answered, and charged nothing.
var nothingDoneCodes = []codes.Code{
	codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
	codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented,
}

// callError returns the error of a call. sent reports whether its message was handed to a connection, so that the
// server may have charged something.
func (t *rpcTransport) callError(ctx context.Context, sent bool, err error) error {
	st, ctxErr := grpcstatus.Convert(err), ctx.Err()
	if ctxErr == nil && st.Code() == codes.DeadlineExceeded {
		ctxErr = context.DeadlineExceeded // the server noticed the deadline first
	}
	if p := problemOf(st); p != nil {
		if ctxErr != nil {
			return fmt.Errorf("%w: %w", problemError(p), ctxErr)
		}
		return problemError(p)
	}
	class := store.ErrUnknownOutcome
	switch {
	case slices.Contains(nothingDoneCodes, st.Code()):
		return fmt.Errorf("server: %w: %s: %w; is it a headgate server?", store.ErrSetup, t.host, err)
	case !sent && st.Code() == codes.Internal: // the message or the metadata cannot be written
		return headgate.Invalid("request", "%s", st.Message())
	case !sent:
		class = store.ErrUnavailable
	}
	if ctxErr != nil {
		err = ctxErr
	}
	return fmt.Errorf("server: %w: %w", class, err)
}

// problemOf returns the problem in a status, or nil.
func problemOf(st *grpcstatus.Status) *api.Problem {
	for _, detail := range st.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == api.Domain {
			return api.ParseMetadata(info.GetMetadata())
		}
	}
	return nil
}

// sentKey is the key of an *atomic.Bool in a call's context: whether its message was handed to a connection.
type sentKey struct{}

// sendRecorder is a stats.Handler that records whether a call was sent. Of several attempts only the last one counts:
// the server processed no other.
type sendRecorder struct{}

func (sendRecorder) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sendRecorder) HandleRPC(ctx context.Context, s stats.RPCStats) {
	sent, ok := ctx.Value(sentKey{}).(*atomic.Bool)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.Begin:
		sent.Store(false)
	case *stats.OutPayload:
		sent.Store(true)
	}
}

func (sendRecorder) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sendRecorder) HandleConn(context.Context, stats.ConnStats) {}
