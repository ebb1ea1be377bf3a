package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/lograte"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// callerCount is the number of keep-alive connections of BenchmarkTakeOverHTTP.
const callerCount = 64

// benchmark is a handler that is measured, and the request that is sent to it.
type benchmark struct {
	name, path string
	limit      string
	answer     string // part of each answer
	edge       bool   // true if the handler stands behind package edge, as in headgate serve
	handler    func(b *testing.B) (h http.Handler, log *slog.Logger)
}

const (
	wideLimit  = "token-bucket 1000000/s burst 1000000" // always has a token
	tightLimit = "token-bucket 1/31d"                   // refuses from the second request on
)

// benchmarks are Headgate and the handlers that it is compared with. A change is judged by the ratios to the empty
// handler and to the handler with encoding/json.
var benchmarks = []benchmark{
	{"empty", "/v1/take", wideLimit, "HTTP/1.1 200", false, emptyHandler},
	{"empty behind edge", "/v1/take", wideLimit, "HTTP/1.1 200", true, emptyHandler},
	{"encoding-json", "/v1/take", wideLimit, `"allowed":true`, false, jsonHandler},
	{"take allowed", "/v1/take", wideLimit, `"allowed":true`, true, stackHandler},
	{"take allowed measured", "/v1/take", wideLimit, `"allowed":true`, true, measuredHandler},
	{"take refused", "/v1/take", tightLimit, `"allowed":false`, true, stackHandler},
	{"check", "/v1/check", wideLimit, `"allowed":true`, true, stackHandler},
}

// body returns the body of a caller's requests. Each caller has its own key.
func (bm *benchmark) body(caller int) string {
	return fmt.Sprintf(`{"limit":%q,"key":"user/%d"}`, bm.limit, 12345678+caller)
}

func emptyHandler(*testing.B) (http.Handler, *slog.Logger) {
	return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), slog.New(slog.DiscardHandler)
}

// jsonHandler reads a request and writes a fixed decision by encoding/json.
func jsonHandler(*testing.B) (http.Handler, *slog.Logger) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in api.Request
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(&api.Decision{
			Allowed: true, Limit: in.Limit, Remaining: "999999", RetryAfterMS: new(int64),
			ResetAfterMS: 1, At: 1_763_712_000_123_456,
		})
	}), slog.New(slog.DiscardHandler)
}

// stackHandler returns the HTTP API over the memory store, with the wrappers and the log that headgate serve has.
func stackHandler(b *testing.B) (http.Handler, *slog.Logger) {
	lines := lograte.New(slog.NewTextHandler(io.Discard, nil))
	b.Cleanup(lines.Close)
	log := slog.New(lines)
	s := front.New(memory.New(&memory.Config{Names: true}), &front.Config{Logger: slog.New(slog.DiscardHandler)})
	b.Cleanup(func() { s.Close() })
	return rest.New(service.New(headgate.New(s, &headgate.Config{Timeout: -1}), &config.Config{}, nil), log, nil), log
}

// BenchmarkTakeOverHTTP sends requests over loopback. Each caller has one connection, and one request at a time.
func BenchmarkTakeOverHTTP(b *testing.B) {
	for _, bm := range benchmarks {
		b.Run(bm.name, func(b *testing.B) {
			addr := bm.listen(b)
			callers := make([]*caller, callerCount)
			for i := range callers {
				callers[i] = newCaller(b, addr, &bm, i)
				if err := callers[i].send(""); err != nil { // the first is allowed also by a tight limit
					b.Fatal(err)
				}
			}
			var budget atomic.Int64
			budget.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for _, c := range callers {
				wg.Go(func() {
					for budget.Add(-1) >= 0 {
						if err := c.send(bm.answer); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}

// listen serves the handler until the benchmark ends.
func (bm *benchmark) listen(b *testing.B) (addr string) {
	h, log := bm.handler(b)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	if bm.edge {
		server := edge.NewServer(h, log, nil)
		b.Cleanup(func() { server.Close() })
		go func() { _ = server.Serve(l) }()
	} else {
		server := &http.Server{Handler: h}
		b.Cleanup(func() { server.Close() })
		go func() { _ = server.Serve(l) }()
	}
	return l.Addr().String()
}

// caller is a connection that sends the same request again and again. It takes as little time as it can, since it runs
// on the processors that serve.
type caller struct {
	conn    net.Conn
	request []byte
	answer  []byte // buffer for one answer
}

func newCaller(b *testing.B, addr string, bm *benchmark, i int) *caller {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	body := bm.body(i)
	return &caller{conn, fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", bm.path, addr, len(body), body), make([]byte, 4096)}
}

// send sends the request and reads the answer. It returns an error unless the answer contains the wanted text.
func (c *caller) send(want string) error {
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	n, end := 0, -1
	for end < 0 || n < end {
		m, err := c.conn.Read(c.answer[n:])
		if err != nil {
			return err
		}
		if n += m; end < 0 {
			end = answerEnd(c.answer[:n])
		}
	}
	if n != end || !bytes.Contains(c.answer[:n], []byte(want)) {
		return fmt.Errorf("answer %q, want one with %s", c.answer[:n], want)
	}
	return nil
}

// answerEnd returns the length of an answer, or -1 if its header is not complete.
func answerEnd(answer []byte) int {
	head, _, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !ok {
		return -1
	}
	_, length, _ := bytes.Cut(head, []byte("Content-Length: "))
	if i := bytes.IndexByte(length, '\r'); i >= 0 {
		length = length[:i]
	}
	n, _ := strconv.Atoi(string(length))
	return len(head) + len("\r\n\r\n") + n
}

// BenchmarkTakeServed calls the handlers without a network, package edge and the server of net/http.
func BenchmarkTakeServed(b *testing.B) {
	for _, bm := range benchmarks {
		if bm.edge && strings.HasPrefix(bm.name, "empty") {
			continue
		}
		b.Run(bm.name, func(b *testing.B) {
			h, _ := bm.handler(b)
			body := bm.body(0)
			in := strings.NewReader(body)
			target := "http://localhost" + bm.path
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, target, io.NopCloser(in))
			if err != nil {
				b.Fatal(err)
			}
			r.RequestURI, r.ContentLength = bm.path, int64(len(body))
			w := &reusableWriter{header: http.Header{}}
			h.ServeHTTP(w, r) // the first is allowed also by a tight limit
			b.ReportAllocs()
			for b.Loop() {
				in.Reset(body)
				w.reset()
				h.ServeHTTP(w, r)
			}
			if strings.HasPrefix(bm.answer, `"`) && !strings.Contains(string(w.text), bm.answer) {
				b.Errorf("answer %q, want one with %s", w.text, bm.answer)
			}
		})
	}
}

// reusableWriter is a ResponseWriter that can be reset.
type reusableWriter struct {
	header http.Header
	text   []byte
}

func (w *reusableWriter) reset() {
	clear(w.header)
	w.text = w.text[:0]
}

func (w *reusableWriter) Header() http.Header { return w.header }
func (w *reusableWriter) WriteHeader(int)     {}

func (w *reusableWriter) Write(text []byte) (int, error) {
	w.text = append(w.text, text...)
	return len(text), nil
}

// BenchmarkAuthServed calls the handler of forward authentication without a network.
func BenchmarkAuthServed(b *testing.B) {
	h, _ := stackHandler(b)
	const path = "/v1/auth?limit=token-bucket+1000000000/h&key=user:1"
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://localhost"+path, http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Forwarded-Uri", "/")
	r.RequestURI = path
	w := &reusableWriter{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.reset()
		h.ServeHTTP(w, r)
	}
	if w.header.Get("RateLimit") == "" {
		b.Errorf("answered with %v", w.header)
	}
}
