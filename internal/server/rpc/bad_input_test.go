package rpc_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/envoy"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// serveBoth serves headgate's own service and Envoy's over one store.
func serveBoth(t *testing.T) (addr string) {
	t.Helper()
	st := memory.New(nil)
	rules, err := envoy.Parse(false, envoy.File{Name: "edge.yaml", Text: []byte(
		"domain: edge\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]\n",
	)})
	if err != nil {
		t.Fatal(err)
	}
	s := service.New(headgate.New(st, nil), &config.Config{}, nil)
	e := envoy.New(s, slog.New(slog.DiscardHandler), envoy.Headers{})
	e.Use(rules)
	_, addr = serve(t, st, nil, e.Service())
	return addr
}

// frame returns a message as gRPC sends it.
func frame(message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
}

// post sends a body to a method. It returns the code and the text of the status, and the message of the answer.
func post(t *testing.T, addr, method string, body []byte) (code codes.Code, text string, answer []byte) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+method, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	trailer := resp.Trailer
	if trailer.Get("Grpc-Status") == "" {
		trailer = resp.Header
	}
	n, err := strconv.Atoi(trailer.Get("Grpc-Status"))
	if err != nil {
		t.Fatalf("the answer has no status: %v, %v", resp.Header, resp.Trailer)
	}
	return codes.Code(n), trailer.Get("Grpc-Message"), answer[min(5, len(answer)):]
}

// objects returns the bytes of a message with n empty messages in a field.
func objects(field protowire.Number, n int) []byte {
	return bytes.Repeat(protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil), n)
}

// TestBadBytesChargeNothing sends what no client library sends. It checks the status of each answer, and that a valid
// request after them is the first charge.
func TestBadBytesChargeNothing(t *testing.T) {
	t.Parallel()
	addr := serveBoth(t)
	key := "alice"
	for name, method := range map[string]struct {
		message   proto.Message
		list      protowire.Number // the field of the charges or descriptors
		remaining func(answer []byte) (int64, error)
	}{
		pb.HeadgateService_Take_FullMethodName: {
			&pb.Request{Charges: []*pb.Charge{{Limit: "sliding-log 100/1d", Key: &key}}}, 1,
			func(answer []byte) (int64, error) {
				d := &pb.Decision{}
				err := proto.Unmarshal(answer, d)
				return d.Remaining, err
			},
		},
		rls.RateLimitService_ShouldRateLimit_FullMethodName: {
			&rls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
				{Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: key}}},
			}}, 2,
			func(answer []byte) (int64, error) {
				r := &rls.RateLimitResponse{}
				if err := proto.Unmarshal(answer, r); err != nil || len(r.Statuses) != 1 {
					return 0, err
				}
				return int64(r.Statuses[0].LimitRemaining), nil
			},
		},
	} {
		valid, err := proto.Marshal(method.message)
		if err != nil {
			t.Fatal(err)
		}
		compressed := frame(valid)
		compressed[0] = 1
		for what, c := range map[string]struct {
			body     []byte
			want     codes.Code
			wantText string
		}{
			"no frame":                   {nil, codes.Internal, ""},
			"a part of a frame's head":   {frame(valid)[:3], codes.Internal, ""},
			"a part of a frame":          {frame(valid)[:len(valid)], codes.Internal, ""},
			"a part of a message":        {frame(valid[:len(valid)-1]), codes.Internal, ""},
			"an unknown compression":     {compressed, codes.Internal, ""},
			"not UTF-8":                  {frame(bytes.Replace(valid, []byte(key), []byte("al\xffce"), 1)), codes.Internal, "UTF-8"},
			"an empty message":           {frame(nil), codes.InvalidArgument, "is"},
			"10,001 objects":             {frame(append(objects(method.list, 10_000), valid...)), codes.InvalidArgument, "10000"},
			"more objects than are read": {frame(append(objects(method.list, 50_000), valid...)), codes.Internal, "50000 objects"},
			"more than 4 MiB":            {frame(append(objects(99, 2<<20), valid...)), codes.ResourceExhausted, "larger"},
		} {
			if code, text, _ := post(t, addr, name, c.body); code != c.want || !strings.Contains(text, c.wantText) {
				t.Errorf("%s, %s: %s %.200q, want %s with %q", name, what, code, text, c.want, c.wantText)
			}
		}
		if code, _, _ := post(t, addr, name+"s", frame(valid)); code != codes.Unimplemented {
			t.Errorf("%ss: %s, want Unimplemented", name, code)
		}
		code, text, answer := post(t, addr, name, frame(valid))
		if remaining, err := method.remaining(answer); code != codes.OK || err != nil || remaining != 99 {
			t.Errorf("%s, a valid request: %s %q, %v, %d remain, want 99 of 100", name, code, text, err, remaining)
		}
	}
}

// TestManyObjectsTakeLittleMemory checks that 4 MiB of empty objects, which would take 200 MiB and more when decoded,
// are refused after at most 80 MiB. It is not parallel, because it reads how much the process has allocated.
func TestManyObjectsTakeLittleMemory(t *testing.T) {
	addr := serveBoth(t)
	const n = 2<<20 - 8
	embed := func(field protowire.Number, b []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), b)
	}
	for _, c := range []struct {
		name, method string
		message      []byte
	}{
		{"charges", pb.HeadgateService_Take_FullMethodName, objects(1, n)},
		{"requests", pb.HeadgateService_Batch_FullMethodName, objects(1, n)},
		{"charges of a request", pb.HeadgateService_Batch_FullMethodName, embed(1, objects(1, n))},
		{"charges of a stream", pb.HeadgateService_Stream_FullMethodName, embed(3, objects(1, n))},
		{"leases", pb.HeadgateService_Renew_FullMethodName, objects(1, n)},
		{"limits", pb.HeadgateService_Usage_FullMethodName, objects(2, n)},
		{"descriptors", rls.RateLimitService_ShouldRateLimit_FullMethodName, objects(2, n)},
		{"entries", rls.RateLimitService_ShouldRateLimit_FullMethodName, embed(2, objects(1, n))},
	} {
		body := frame(c.message)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, text, _ := post(t, addr, c.method, body)
		runtime.ReadMemStats(&after)
		if code != codes.Internal || !strings.Contains(text, "50000 objects") {
			t.Errorf("%s: got %s %q, want Internal with 50000 objects", c.name, code, text)
		}
		mib := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %d MiB were allocated for %d bytes", c.name, mib, len(body))
		if mib > 80 {
			t.Errorf("%s: %d MiB were allocated for a message of 4 MiB, want at most 80", c.name, mib)
		}
	}
}
