package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	grpcstatus "google.golang.org/grpc/status"

	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// envoyFile is a config file of envoyproxy/ratelimit, with a limit of 3 an hour for each user.
const envoyFile = `domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 3}
`

// TestGRPCServices calls the services of a server's gRPC address: with a token, without one, with a token that lacks
// the right, and after the server has stopped. An open stream of reflection does not delay the stop.
func TestGRPCServices(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	token, apiToken := auth.NewToken(), auth.NewToken()
	text, err := auth.FileText([]auth.Entry{
		{Name: "gateway", Role: "take", Limits: []string{"*"}, Hashes: []string{auth.Hash(token)}},
		{Name: "other", Role: "take", Limits: []string{"api*"}, Hashes: []string{auth.Hash(apiToken)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"tokens.yaml": string(text), "edge.yaml": envoyFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startReady(t, dir, "--store", "memory:", "--grpc", addr, "--envoy", "edge.yaml", "--tokens", "tokens.yaml")
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	h, err := healthpb.NewHealthClient(conn).Check(ctx, nil)
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	withToken := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "headgate-token", token)
	}
	key := "alice"
	take := &pb.Request{Charges: []*pb.Charge{{Limit: "token-bucket 1/1h", Key: &key}}}
	headgateClient, envoyClient := pb.NewHeadgateServiceClient(conn), rls.NewRateLimitServiceClient(conn)
	for i, want := range []bool{true, false} {
		if d, err := headgateClient.Take(withToken(token), take); err != nil || d.Allowed != want {
			t.Errorf("take %d: %v, %v, want %t", i, d, err, want)
		}
	}
	envoyRequest := &rls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "alice"}}},
	}}
	for i, want := range []rls.RateLimitResponse_Code{1, 1, 1, 2} { // OK, at last OVER_LIMIT
		if a, err := envoyClient.ShouldRateLimit(withToken(token), envoyRequest); err != nil || a.OverallCode != want {
			t.Errorf("Envoy's request %d: %v, %v, want %s", i, a, err, want)
		}
	}
	for name, tt := range map[string]struct {
		ctx  context.Context
		want codes.Code
	}{
		"no token":                      {ctx, codes.Unauthenticated},
		"an unknown token":              {withToken("no"), codes.Unauthenticated},
		"a token for other limits only": {withToken(apiToken), codes.PermissionDenied},
	} {
		if _, err := envoyClient.ShouldRateLimit(tt.ctx, envoyRequest); grpcstatus.Code(err) != tt.want {
			t.Errorf("Envoy with %s: %v, want %s", name, err, tt.want)
		}
		if _, err := headgateClient.Take(tt.ctx, take); grpcstatus.Code(err) != tt.want {
			t.Errorf("take with %s: %v, want %s", name, err, tt.want)
		}
	}
	names := listServices(withToken(token), t, conn)
	if !slices.Contains(names, "envoy.service.ratelimit.v3.RateLimitService") ||
		!slices.Contains(names, "headgate.v1.HeadgateService") {
		t.Errorf("reflection lists %v, want both services", names)
	}
	s.stop(t)
	if _, err := headgateClient.Take(withToken(token), take); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("after the server has stopped: got %v, want Unavailable", err)
	}
}

// TestCommandsOverGRPC runs commands over gRPC with a token, and take with a wrong token or address.
func TestCommandsOverGRPC(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	file := filepath.Join(dir, "tokens.yaml")
	token := newToken(t, file, "all", "--role", "admin")
	startReady(t, dir, "--store", "memory:", "--grpc", addr, "--tokens", file)
	url := "grpc://" + addr
	const limit = "token-bucket 3/1d"
	for _, tt := range []struct {
		args     []string
		code     int
		wantText string
	}{
		{[]string{"take", limit, "alice", "--cost", "2"}, 0, `^allowed .* remaining 1,`},
		{[]string{"take", limit, "alice", "--cost", "2"}, 1, `^refused `},
		{[]string{"check", limit, "alice"}, 0, `^allowed .* remaining 1,`},
		{[]string{"fill-up", limit, "alice", "5"}, 0, `1(\.\d+)? of 5`},
		{[]string{"inspect", "alice", limit, "-o", "json"}, 0, `"exists": ?true`},
		{[]string{"why", "alice", limit}, 0, `REFUSED AT`},
		{[]string{"block", "bob", limit, "--for", "1h", "--reason", "guesses"}, 0, `^blocked until .* bob`},
		{[]string{"list", "--blocked"}, 0, `bob`},
		{[]string{"explain", "GET /"}, 0, `no rule`},
		{[]string{"reset", "bob", limit}, 0, `reset|forgot`},
		{[]string{"take", "5/1s", "alice", "--cost", "1e999"}, exitError, `cost`},
		{[]string{"inspect", "alice", "nope"}, exitError, `limit: unknown: "nope"`},
	} {
		code, out, stderr := runArgs(t, append(tt.args, "--server", url, "--token", token)...)
		if code != tt.code || !regexp.MustCompile(tt.wantText).MatchString(out+stderr) {
			t.Errorf("%v: exit %d, want %d; %q %q, want %s", tt.args, code, tt.code, out, stderr, tt.wantText)
		}
	}
	for wantText, args := range map[string][]string{
		"token is not listed": {url, "--token", "hgt_wrong"},
		"grpc://HOST:PORT":    {"grpc://127.0.0.1"},
		"connection refused":  {fmt.Sprintf("grpc://127.0.0.1:%d", dbtest.FreePort(t))},
	} {
		code, out, stderr := runArgs(t, append([]string{"take", limit, "alice", "--server"}, args...)...)
		if code != exitError || out != "" || !strings.Contains(stderr, wantText) {
			t.Errorf("exit %d, want %d; %q %q, want %q", code, exitError, out, stderr, wantText)
		}
	}
}

// listServices returns the names of the services that a server lists by reflection.
func listServices(ctx context.Context, t *testing.T, conn *grpc.ClientConn) (names []string) {
	t.Helper()
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	a, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range a.GetListServicesResponse().GetService() {
		names = append(names, s.Name)
	}
	return names
}
