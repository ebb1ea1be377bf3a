package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/jackc/pgx/v5"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// protocolDecision is the decision in a protocol's answer.
type protocolDecision struct {
	allowed   bool
	remaining int64
}

// TestProtocolsDecideAlike sends the same 100 requests by each protocol, each with keys of its own. The decisions and
// the remaining amounts are the same.
func TestProtocolsDecideAlike(t *testing.T) {
	t.Parallel()
	const limit = "gcra 30/1d burst 16"
	dir, dsn := t.TempDir(), migrated.Postgres(t)
	file := "domain: edge\ndescriptors:\n  - key: user\n    charge: when_allowed\n    rate_limit: {headgate: \"" + limit + "\"}\n"
	if err := os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	grpcAddr, respAddr := fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	s := startReady(t, dir, "--store", dsn, "--grpc", grpcAddr, "--resp", respAddr, "--envoy", "edge.yaml")
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	headgateClient, envoyClient := pb.NewHeadgateServiceClient(conn), rls.NewRateLimitServiceClient(conn)
	respClient, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{respAddr}, DisableCache: true, ForceSingleClient: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(respClient.Close)
	pgConn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pgConn.Close(t.Context()) })

	protocols := map[string]func(key string, cost int64) (protocolDecision, error){
		"JSON": func(key string, cost int64) (protocolDecision, error) {
			body, err := json.Marshal(map[string]any{"limit": limit, "key": key, "cost": cost})
			if err != nil {
				return protocolDecision{}, err
			}
			resp, err := http.Post(s.url+"/v1/take", "application/json", bytes.NewReader(body))
			if err != nil {
				return protocolDecision{}, err
			}
			defer resp.Body.Close()
			var d struct {
				Allowed   bool
				Remaining int64
			}
			err = json.NewDecoder(resp.Body).Decode(&d)
			return protocolDecision{d.Allowed, d.Remaining}, err
		},
		"/v1/auth": func(key string, cost int64) (protocolDecision, error) {
			query := url.Values{"key": {key}, "cost": {fmt.Sprint(cost)}}.Encode()
			return takeByForwardAuth(s.url + "/v1/auth?limit=" + url.QueryEscape(limit) + "&" + query)
		},
		"gRPC": func(key string, cost int64) (protocolDecision, error) {
			d, err := headgateClient.Take(t.Context(), &pb.Request{
				Charges: []*pb.Charge{{Limit: limit, Key: &key, Cost: fmt.Sprint(cost)}},
			})
			return protocolDecision{d.GetAllowed(), d.GetRemaining()}, err
		},
		"Envoy": func(key string, cost int64) (protocolDecision, error) {
			a, err := envoyClient.ShouldRateLimit(t.Context(), &rls.RateLimitRequest{
				Domain: "edge",
				Descriptors: []*common.RateLimitDescriptor{{
					Entries:    []*common.RateLimitDescriptor_Entry{{Key: "user", Value: key}},
					HitsAddend: wrapperspb.UInt64(uint64(cost)),
				}},
			})
			if err != nil {
				return protocolDecision{}, err
			}
			return protocolDecision{a.OverallCode == rls.RateLimitResponse_OK, int64(a.Statuses[0].LimitRemaining)}, nil
		},
		"RESP": func(key string, cost int64) (protocolDecision, error) {
			reply, err := respClient.Do(t.Context(), respClient.B().Arbitrary("CL.THROTTLE").Keys(key).
				Args("15", "30", "86400", fmt.Sprint(cost)).Build()).AsIntSlice() // a burst of 15 + 1, 30 in 1 d
			if err != nil || len(reply) != 5 {
				return protocolDecision{}, fmt.Errorf("%v: %w", reply, err)
			}
			return protocolDecision{reply[0] == 0, reply[2]}, nil
		},
		"SQL": func(key string, cost int64) (d protocolDecision, err error) {
			err = pgConn.QueryRow(t.Context(), `select allowed, remaining from headgate.take($1, $2, $3)`, limit, key, cost).
				Scan(&d.allowed, &d.remaining)
			return d, err
		},
	}
	rng := rand.New(rand.NewPCG(19, 0))
	refused := 0
	for i := range 100 {
		key, cost := fmt.Sprint("user ", rng.IntN(8)), 1+rng.Int64N(4)
		got := map[string]protocolDecision{}
		for name, take := range protocols {
			d, err := take(name+" "+key, cost)
			if err != nil {
				t.Fatalf("%s, request %d: %v", name, i, err)
			}
			got[name] = d
		}
		for name, d := range got {
			if d != got["SQL"] {
				t.Fatalf("request %d, %d of %q: %s decides %+v, SQL %+v", i, cost, key, name, d, got["SQL"])
			}
		}
		if !got["SQL"].allowed {
			refused++
		}
	}
	if refused < 10 || refused > 90 {
		t.Errorf("got %d of 100 refused, want 10 to 90", refused)
	}
}

// remainingField matches the remaining amount in the header RateLimit.
var remainingField = regexp.MustCompile(`;r=(\d+)`)

// takeByForwardAuth takes by forward authentication.
func takeByForwardAuth(address string) (protocolDecision, error) {
	req, err := http.NewRequest(http.MethodGet, address, http.NoBody)
	if err != nil {
		return protocolDecision{}, err
	}
	req.Header.Set("X-Forwarded-Uri", "/")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return protocolDecision{}, err
	}
	defer resp.Body.Close()
	found := remainingField.FindStringSubmatch(resp.Header.Get("RateLimit"))
	if found == nil || resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusTooManyRequests {
		return protocolDecision{}, fmt.Errorf("status %d, %v", resp.StatusCode, resp.Header)
	}
	n, err := strconv.ParseInt(found[1], 10, 64)
	return protocolDecision{resp.StatusCode == http.StatusNoContent, n}, err
}
