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

func retryInfo(after time.Duration) *errdetails.RetryInfo {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(after)}
}

// TestAClientObeysTheRefusalOfAServer: of a unary call, of the start of a stream, and of a message.
func TestAClientObeysTheRefusalOfAServer(t *testing.T) {
	t.Parallel()
	for name, perMessage := range map[string]bool{"calls": false, "messages": true} {
		for _, stream := range []bool{false, true} {
			here, there := memoryLimiter(), memoryLimiter()
			ours, theirs := headgate.MustParse("token-bucket 1000/s"), headgate.MustParse("token-bucket 1/10m")
			server := must(t, there, grpclimit.ServerConfig{
				Charges: charges(grpclimit.Charge{Limit: theirs, Key: grpclimit.ByPeer, PerMessage: perMessage}),
			})
			f := (&far{}).start(t, limited(server),
				grpc.WithUnaryInterceptor(grpclimit.UnaryClient(here, ours, nil)),
				grpc.WithStreamInterceptor(grpclimit.StreamClient(here, ours, grpclimit.ByTarget)))
			call := func() error {
				if stream {
					_, _, err := f.talk(t.Context(), 1)
					return err
				}
				_, _, err := f.call(t.Context())
				return err
			}
			expect(t, name, call(), codes.OK)
			err := call()
			if expect(t, name, err, codes.ResourceExhausted); errors.Is(err, headgate.ErrDenied) {
				t.Errorf("%s: the server's refusal is told as the client's: %v", name, err)
			}
			s, inspected := here.Inspect(t.Context(), ours, "passthrough:far")
			if got := s.BlockedUntil.Sub(s.At); inspected != nil || got < 9*time.Minute || got > 10*time.Minute {
				t.Errorf("%s, stream %v: blocked for %v (%v), want 10m", name, stream, got, inspected)
			}
			served := f.served.Load()
			nobody, err := grpclimit.NewClient(here, ours, &grpclimit.ClientConfig{MaxWait: -1})
			if err != nil {
				t.Fatal(err)
			}
			err = nobody.Unary(t.Context(), unary, nil, nil, f.conn, (&sender{}).invoke)
			if !errors.Is(err, headgate.ErrDenied) || f.served.Load() != served {
				t.Errorf("%s: during the block: %v", name, err)
			}
		}
	}
}
