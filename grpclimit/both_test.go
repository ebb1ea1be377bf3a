package grpclimit_test

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

// retryInfo returns a RetryInfo with a delay.
func retryInfo(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

// TestRetryInfoOfAServerBlocksTheClient checks that a refused call, stream or message blocks the key of the client.
func TestRetryInfoOfAServerBlocksTheClient(t *testing.T) {
	t.Parallel()
	for name, perMessage := range map[string]bool{"calls": false, "messages": true} {
		for _, stream := range []bool{false, true} {
			clientLimiter, serverLimiter := memoryLimiter(), memoryLimiter()
			clientLimit := headgate.MustParse("token-bucket 1000/s")
			serverLimit := headgate.MustParse("token-bucket 1/10m")
			server := mustServer(t, serverLimiter, grpclimit.ServerConfig{
				Charges: charges(grpclimit.Charge{Limit: serverLimit, Key: grpclimit.ByPeer, PerMessage: perMessage}),
			})
			srv := (&testServer{}).start(t, withInterceptors(server),
				grpc.WithUnaryInterceptor(grpclimit.UnaryClient(clientLimiter, clientLimit, nil)),
				grpc.WithStreamInterceptor(grpclimit.StreamClient(clientLimiter, clientLimit, grpclimit.ByTarget)))
			call := func() error {
				if stream {
					_, _, err := srv.stream(t.Context(), 1)
					return err
				}
				_, _, err := srv.call(t.Context())
				return err
			}
			expectCode(t, name, call(), codes.OK)
			err := call()
			if expectCode(t, name, err, codes.ResourceExhausted); errors.Is(err, headgate.ErrDenied) {
				t.Errorf("%s: got %v, want no refusal of the client's own", name, err)
			}
			s, inspectErr := clientLimiter.Inspect(t.Context(), clientLimit, "passthrough:far")
			if got := s.BlockedUntil.Sub(s.At); inspectErr != nil || got < 9*time.Minute || got > 10*time.Minute {
				t.Errorf("%s, stream %v: blocked for %v (%v), want 10m", name, stream, got, inspectErr)
			}
			served := srv.served.Load()
			noWait, err := grpclimit.NewClient(clientLimiter, clientLimit, &grpclimit.ClientConfig{MaxWait: -1})
			if err != nil {
				t.Fatal(err)
			}
			err = noWait.Unary(t.Context(), unary, nil, nil, srv.conn, (&caller{}).invoke)
			if !errors.Is(err, headgate.ErrDenied) || srv.served.Load() != served {
				t.Errorf("%s: during the block: got %v, want %v", name, err, headgate.ErrDenied)
			}
		}
	}
}
