package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/storetest"
)

func TestMain(m *testing.M) {
	if runIfChild() {
		return
	}
	leaktest.Main(m)
}

// fastLimit refuses no request of these tests by itself.
var fastLimit = headgate.MustParse("token-bucket 1000/s")

// scriptedServer sends the answers of a script, then always the last one. Its client sends by a RoundTripper with the
// key "far".
type scriptedServer struct {
	*httptest.Server
	client   *http.Client
	limiter  *headgate.Limiter
	mu       sync.Mutex
	bodies   []string            // of the requests; guarded by mu
	backoffs []httplimit.Backoff // what OnBackoff got; guarded by mu
}

// answer is a status and lines of fields.
type answer struct {
	status int
	fields string
}

func newScriptedServer(t *testing.T, limit headgate.Limit, cfg httplimit.Config, script ...answer) *scriptedServer {
	t.Helper()
	s := &scriptedServer{limiter: headgate.New(memory.New(nil), &headgate.Config{Timeout: time.Minute})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		defer s.mu.Unlock()
		a := script[min(len(s.bodies), len(script)-1)]
		s.bodies = append(s.bodies, string(body))
		for name, values := range headerOf(a.fields) {
			w.Header()[name] = values
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, http.StatusText(a.status))
	}))
	transport := &http.Transport{}
	cfg.Next = transport
	cfg.Key = func(*http.Request) string { return "far" }
	cfg.OnBackoff = func(b httplimit.Backoff) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.backoffs = append(s.backoffs, b)
	}
	rt, err := httplimit.New(s.limiter, limit, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.client = &http.Client{Transport: rt}
	t.Cleanup(func() { s.client.CloseIdleConnections(); s.Close() })
	return s
}

// requestBodies returns the bodies of the requests so far.
func (s *scriptedServer) requestBodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

// send sends a request, and returns the status and body of its answer.
func (s *scriptedServer) send(ctx context.Context, method, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func TestRefusedRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("token-bucket 1/h burst 2")
	s := newScriptedServer(t, limit, httplimit.Config{}, answer{200, ""})
	for range 2 {
		if status, _, err := s.send(t.Context(), "GET", ""); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	_, _, err := s.send(t.Context(), "GET", "")
	denied, ok := errors.AsType[*headgate.DeniedError](err)
	if !ok || !errors.Is(err, headgate.ErrDenied) || denied.Decision.RetryAfter < 59*time.Minute {
		t.Errorf("got %v, want a refusal for an hour", err)
	}
	if n := len(s.requestBodies()); n != 2 {
		t.Errorf("got %d requests sent, want 2", n)
	}
}

func TestWaitsBeyondTheDeadlineAreRefusedAtOnce(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 1/h", "sliding-log 1/1h"} {
		cfg := httplimit.Config{MaxWait: headgate.Never}
		s := newScriptedServer(t, headgate.MustParse(notation), cfg, answer{200, ""})
		s.client.Timeout = time.Minute // net/http makes it a deadline of the request
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _, firstErr := s.send(ctx, "GET", "")
		_, _, err := s.send(ctx, "GET", "")
		if firstErr != nil || ctx.Err() != nil ||
			!errors.Is(err, headgate.ErrDeadline) || !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("%s: got %v and %v, want a refusal at once; the context says %v", notation, firstErr, err, ctx.Err())
		}
		cancel()
		if n := len(s.requestBodies()); n != 1 {
			t.Errorf("%s: got %d requests sent, want 1", notation, n)
		}
	}
}

func TestWaitingEndsWhenTheContextIsCancelled(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 1/h", "sliding-log 1/1h"} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			next := roundTripFunc(func(*http.Request) (*http.Response, error) {
				sent++
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})
			rt, err := httplimit.New(headgate.New(memory.New(nil), nil), headgate.MustParse(notation),
				&httplimit.Config{MaxWait: headgate.Never, Next: next})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			time.AfterFunc(20*time.Minute, cancel)
			client := &http.Client{Transport: rt}
			for i, want := range []error{nil, context.Canceled} {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://far.test/", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err == nil {
					resp.Body.Close()
				}
				if !errors.Is(err, want) {
					t.Errorf("%s, request %d: got %v, want %v", notation, i, err, want)
				}
			}
			if sent != 1 {
				t.Errorf("%s: got %d requests sent, want 1", notation, sent)
			}
		})
	}
}

// trackedBody records whether it was closed.
type trackedBody struct {
	io.Reader
	closed atomic.Bool
}

func (b *trackedBody) Close() error { b.closed.Store(true); return nil }

func TestBodiesOfUnsentRequestsAreClosed(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name    string
		ctx     context.Context
		store   store.Store
		cost    string
		maxWait time.Duration
		wantErr error
	}{
		{"refused", t.Context(), memory.New(nil), "9", 0, headgate.ErrDenied},
		{"never", t.Context(), memory.New(nil), "9", headgate.Never, headgate.ErrDenied},
		{"the store is away", t.Context(), storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, "1", 0, store.ErrUnavailable},
		{"the store is away, waiting", t.Context(), storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, "1", time.Second, store.ErrUnavailable},
		{"the context has ended", cancelled, memory.New(nil), "1", 0, context.Canceled},
	} {
		rt, err := httplimit.New(headgate.New(tt.store, nil), headgate.MustParse("token-bucket 1/h burst 2"),
			&httplimit.Config{
				Next: roundTripFunc(func(*http.Request) (*http.Response, error) {
					t.Errorf("%s: the request was sent", tt.name)
					return nil, os.ErrInvalid
				}),
				Cost:    func(*http.Request) headgate.Cost { return headgate.MustCost(tt.cost) },
				MaxWait: tt.maxWait,
			})
		if err != nil {
			t.Fatal(err)
		}
		b := &trackedBody{Reader: strings.NewReader("x")}
		req, _ := http.NewRequestWithContext(tt.ctx, http.MethodPost, "http://example.com/", b)
		if _, err := rt.RoundTrip(req); !errors.Is(err, tt.wantErr) || !b.closed.Load() { //nolint:bodyclose // none
			t.Errorf("%s: got %v (closed: %v), want %v", tt.name, err, b.closed.Load(), tt.wantErr)
		}
	}
}

// roundTripFunc is a RoundTripper that is a function.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestHostKey(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://API.Example.com/x":       "api.example.com",
		"http://example.com:80":          "example.com",
		"https://example.com.:443":       "example.com",
		"https://example.com:80":         "example.com:80",
		"http://[2001:DB8::1]:8080/":     "[2001:db8::1]:8080",
		"https://user:word@example.com/": "example.com",
	} {
		u, err := url.Parse(raw)
		if got := httplimit.HostKey(&http.Request{URL: u}); err != nil || got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func TestNewRoundTripperErrors(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(nil), nil)
	for _, tt := range []struct {
		limit headgate.Limit
		cfg   httplimit.Config
	}{
		{headgate.Limit{}, httplimit.Config{}},
		{headgate.MustParse("concurrency 3 ttl 30s"), httplimit.Config{}},
		{fastLimit, httplimit.Config{Retries: 1}},
		{fastLimit, httplimit.Config{Retries: -1, MaxWait: 1}},
		{fastLimit, httplimit.Config{MaxWait: -1}},
	} {
		if _, err := httplimit.New(l, tt.limit, &tt.cfg); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v, %+v: got %v, want %v", tt.limit, tt.cfg, err, headgate.ErrInvalid)
		}
	}
	if _, err := httplimit.New(nil, fastLimit, nil); err == nil {
		t.Error("no limiter: got no error")
	}
}
