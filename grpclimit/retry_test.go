package grpclimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

// retryPolicy is a service configuration by which a client sends a call up to five times.
const retryPolicy = `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 5, "initialBackoff": "0.05s",
	"maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// TestRetryPolicyObeysThePushback checks how often, and for how long, a client with a retry policy sends a call.
func TestRetryPolicyObeysThePushback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit         string
		cost          int64
		noRetryBeyond time.Duration
		storeErr      error
		attempts      int
		wait          time.Duration
		code          codes.Code
	}{
		"in 3 s":              {"sliding-log 1/3s", 1, 0, nil, 2, 3 * time.Second, codes.OK},
		"in 300 ms":           {"token-bucket 10/3s burst 1", 1, 0, nil, 2, 300 * time.Millisecond, codes.OK},
		"in an hour":          {"sliding-log 1/1h", 1, 0, nil, 1, 0, codes.ResourceExhausted},
		"in an hour, allowed": {"sliding-log 1/1h", 1, 2 * time.Hour, nil, 2, time.Hour, codes.OK},
		"never":               {"sliding-log 1/3s", 2, 0, nil, 1, 0, codes.ResourceExhausted},
		"the store is away": {
			"sliding-log 1/3s", 1, 0, store.ErrUnavailable, 5, 4 * time.Second, codes.Unavailable, // 4 waits of 1 s
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var s store.Store = memory.New(nil)
			if tt.storeErr != nil {
				s = storetest.Failing{Store: s, Err: tt.storeErr}
			}
			l, limit := headgate.New(s, nil), headgate.MustParse(tt.limit)
			attempts := 0
			server := mustServer(t, l, grpclimit.ServerConfig{
				NoRetryBeyond: tt.noRetryBeyond,
				Charges: charges(grpclimit.Charge{
					Limit: limit, Key: grpclimit.ByPeer,
					Cost: func(*grpclimit.Call) (headgate.Cost, error) {
						attempts++
						return headgate.Units(tt.cost), nil
					},
				}),
				OnError: func(*grpclimit.Call, error) {},
			})
			srv := (&testServer{}).start(t, withInterceptors(server), grpc.WithDefaultServiceConfig(retryPolicy))
			if tt.storeErr == nil {
				if _, err := l.Allow(t.Context(), limit, "192.0.2.1"); err != nil {
					t.Fatal(err)
				}
			}
			begin := time.Now()
			_, _, err := srv.call(t.Context())
			expectCode(t, name, err, tt.code)
			if took := time.Since(begin).Round(time.Millisecond); attempts != tt.attempts || took != tt.wait {
				t.Errorf("%s: %d attempts in %v, want %d in %v", name, attempts, took, tt.attempts, tt.wait)
			}
		})
	}
}
