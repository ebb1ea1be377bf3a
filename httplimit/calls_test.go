package httplimit_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/store/memory"
)

// exhausted is the code and the message of a refusal in JSON.
const exhausted = `"code":"resource_exhausted","message":"Quota exceeded: the call was refused and has charged nothing. It can pass in 3600 s."`

// TestCallsAreRefusedInTheirProtocol checks the refusals of gRPC, gRPC-Web and Connect, and of other requests.
func TestCallsAreRefusedInTheirProtocol(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return 1_800_000_000_000_000 }}), nil)
	limit := headgate.MustParse("fixed-window 1/1h from-first")
	if _, err := l.Allow(t.Context(), limit, "all"); err != nil {
		t.Fatal(err)
	}
	h := httplimit.Handler(l, limit, httplimit.ByConst("all"))(respondWith(204))
	const grpcStatus, error429, stream, problem = "grpc-status", "error", "stream", "problem" // forms of a refusal
	for _, tt := range []struct {
		method, target, fields string
		form, contentType      string
	}{
		{"POST", "/a.B/C", "Content-Type: application/grpc", grpcStatus, "application/grpc"},
		{"POST", "/a.B/C", "Content-Type: application/grpc+proto; charset=x", grpcStatus, "application/grpc+proto"},
		{"POST", "/a.B/C", "Content-Type: Application/gRPC-Web+proto", grpcStatus, "application/grpc-web+proto"},
		{"POST", "/a.B/C", "Content-Type: application/grpc-web-text", grpcStatus, "application/grpc-web-text"},
		{"POST", "/a.B/C", "Content-Type: application/json\nConnect-Protocol-Version: 1", error429, "application/json"},
		{"POST", "/a.B/C", "Content-Type: application/proto", error429, "application/json"},
		{"POST", "/a.B/C", "Content-Type: application/connect+proto", stream, "application/connect+proto"},
		{"POST", "/a.B/C", "Content-Type: application/connect+json\nConnect-Protocol-Version: 1", stream, "application/connect+json"},
		{"GET", "/a.B/C?connect=v1&encoding=json&message=%7B%7D", "", error429, "application/json"},
		{"POST", "/", "Content-Type: application/json", problem, "application/problem+json"},
		{"POST", "/", "Content-Type: application/grpcx", problem, "application/problem+json"},
		{"GET", "/", "Content-Type: application/grpc", problem, "application/problem+json"},
		{"GET", "/?connect=v2", "", problem, "application/problem+json"},
	} {
		r := httptest.NewRequest(tt.method, tt.target, nil)
		r.Header, r.ProtoMajor = headerOf(tt.fields), 2
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		body, header := w.Body.String(), w.Header()
		var ok bool
		switch tt.form {
		case grpcStatus:
			ok = w.Code == 200 && body == "" && header.Get("Grpc-Status") == "8" &&
				header.Get("Grpc-Retry-Pushback-Ms") == "-1" &&
				strings.Contains(header.Get("Grpc-Message"), "in 3600 s")
		case error429:
			ok = w.Code == 429 && body == "{"+exhausted+"}"
		case stream:
			const endMessage = `{"error":{` + exhausted + `}}`
			endFrame := string([]byte{2, 0, 0, 0, byte(len(endMessage))}) + endMessage // 2: end of the stream
			ok = w.Code == 200 && body == endFrame && json.Valid([]byte(endMessage))
		default:
			ok = w.Code == 429 && strings.Contains(body, httplimit.QuotaExceeded) && header.Get("Grpc-Status") == ""
		}
		if !ok || header.Get("Content-Type") != tt.contentType || header.Get("Retry-After") != "3600" ||
			header.Get("RateLimit") == "" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s %q: got %d %v %q, want form %s", tt.method, tt.target, tt.fields, w.Code, header, body, tt.form)
		}
	}
	// gRPC needs HTTP/2. A request by HTTP/1 with its Content-Type is no call, and must not be answered with 200.
	if w := sendBody(h, "Content-Type: application/grpc", ""); w.Code != 429 {
		t.Errorf("by HTTP/1: got %d, want 429", w.Code)
	}
}

// TestGRPCClientGetsResourceExhausted checks the refusal of a unary call and of a stream with a client of gRPC.
func TestGRPCClientGetsResourceExhausted(t *testing.T) {
	t.Parallel()
	h := httplimit.Handler(memoryLimiter(), headgate.MustParse("0"), httplimit.ByConst("all"))(respondWith(204))
	server := httptest.NewUnstartedServer(h)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	defer server.Close()
	conn, err := grpc.NewClient("passthrough:"+server.Listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_testing.NewTestServiceClient(conn)
	var trailer metadata.MD
	_, err = client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, grpc.Trailer(&trailer))
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "never pass") ||
		!slices.Equal(trailer["grpc-retry-pushback-ms"], []string{"-1"}) {
		t.Errorf("a call: got %v, %v; want %v", err, trailer, codes.ResourceExhausted)
	}
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream: got %v, want %v", err, codes.ResourceExhausted)
	}
}
