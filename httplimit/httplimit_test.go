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
	if child() {
		return
	}
	leaktest.Main(m)
}

var plenty = headgate.MustParse("token-bucket 1000/s")

// far is a server that answers with a script, its last line for ever, and a
// client of it.
type far struct {
	*httptest.Server
	client  *http.Client
	limiter *headgate.Limiter
	mu      sync.Mutex
	bodies  []string // of the requests
	holds   []httplimit.Backoff
}

// answer is a status and lines of fields.
type answer struct {
	status int
	fields string
}

func newFar(t *testing.T, limit headgate.Limit, cfg httplimit.Config, script ...answer) *far {
	t.Helper()
	f := &far{limiter: headgate.New(memory.New(nil), &headgate.Config{Timeout: time.Minute})}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f.mu.Lock()
		defer f.mu.Unlock()
		a := script[min(len(f.bodies), len(script)-1)]
		f.bodies = append(f.bodies, string(body))
		for name, values := range fields(a.fields) {
			w.Header()[name] = values
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, http.StatusText(a.status))
	}))
	transport := &http.Transport{}
	cfg.Next = transport
	cfg.Key = func(*http.Request) string { return "far" }
	cfg.OnBackoff = func(h httplimit.Backoff) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.holds = append(f.holds, h)
	}
	rt, err := httplimit.New(f.limiter, limit, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.client = &http.Client{Transport: rt}
	t.Cleanup(func() { f.client.CloseIdleConnections(); f.Close() })
	return f
}

func (f *far) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.bodies...)
}

// do sends a request, and returns the status and body of its answer.
func (f *far) do(ctx context.Context, method, body string) (int, string, error) {
	req, err := http.NewRequestWithContext(ctx, method, f.URL, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(got), err
}

func TestRefusedRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("token-bucket 1/h burst 2")
	f := newFar(t, limit, httplimit.Config{}, answer{200, ""})
	for range 2 {
		if status, _, err := f.do(t.Context(), "GET", ""); status != 200 || err != nil {
			t.Fatal(status, err)
		}
	}
	_, _, err := f.do(t.Context(), "GET", "")
	denied, ok := errors.AsType[*headgate.DeniedError](err)
	if !ok || !errors.Is(err, headgate.ErrDenied) || denied.Decision.RetryAfter < 59*time.Minute {
		t.Errorf("got %v, want a refusal for an hour", err)
	}
	if n := len(f.seen()); n != 2 {
		t.Errorf("%d were sent, want 2", n)
	}
}

func TestWaitingEndsWithTheDeadline(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 1/h", "sliding-log 1/1h"} {
		f := newFar(t, headgate.MustParse(notation), httplimit.Config{MaxWait: headgate.Never}, answer{200, ""})
		f.client.Timeout = time.Minute // a deadline like another
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, _, first := f.do(ctx, "GET", "")
		_, _, err := f.do(ctx, "GET", "")
		if first != nil || ctx.Err() != nil ||
			!errors.Is(err, headgate.ErrDeadline) || !errors.Is(err, headgate.ErrDenied) {
			t.Errorf("%s: got %v and %v, want a refusal at once; the context says %v", notation, first, err, ctx.Err())
		}
		cancel()
		if n := len(f.seen()); n != 1 {
			t.Errorf("%s: %d were sent, want 1", notation, n)
		}
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for _, notation := range []string{"token-bucket 1/h", "sliding-log 1/1h"} {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			next := sender(func(*http.Request) (*http.Response, error) {
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
				t.Errorf("%s: %d were sent, want 1", notation, sent)
			}
		})
	}
}

// body tells whether it was closed.
type body struct {
	io.Reader
	closed atomic.Bool
}

func (b *body) Close() error { b.closed.Store(true); return nil }

func TestBodiesOfUnsentRequestsAreClosed(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		store store.Store
		cost  string
		wait  time.Duration
		want  error
	}{
		{"refused", t.Context(), memory.New(nil), "9", 0, headgate.ErrDenied},
		{"never", t.Context(), memory.New(nil), "9", headgate.Never, headgate.ErrDenied},
		{"the store is away", t.Context(), storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, "1", 0, store.ErrUnavailable},
		{"the store is away, waiting", t.Context(), storetest.Failing{Store: memory.New(nil), Err: store.ErrUnavailable}, "1", time.Second, store.ErrUnavailable},
		{"the context has ended", ended, memory.New(nil), "1", 0, context.Canceled},
	} {
		rt, err := httplimit.New(headgate.New(tt.store, nil), headgate.MustParse("token-bucket 1/h burst 2"),
			&httplimit.Config{
				Next: sender(func(*http.Request) (*http.Response, error) {
					t.Errorf("%s: it was sent", tt.name)
					return nil, os.ErrInvalid
				}),
				Cost:    func(*http.Request) headgate.Cost { return headgate.MustCost(tt.cost) },
				MaxWait: tt.wait,
			})
		if err != nil {
			t.Fatal(err)
		}
		b := &body{Reader: strings.NewReader("x")}
		req, _ := http.NewRequestWithContext(tt.ctx, http.MethodPost, "http://example.com/", b)
		if _, err := rt.RoundTrip(req); !errors.Is(err, tt.want) || !b.closed.Load() { //nolint:bodyclose // none
			t.Errorf("%s: got %v (closed: %v), want %v", tt.name, err, b.closed.Load(), tt.want)
		}
	}
}

// sender is a RoundTripper that is a function.
type sender func(*http.Request) (*http.Response, error)

func (s sender) RoundTrip(req *http.Request) (*http.Response, error) { return s(req) }

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

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	l := headgate.New(memory.New(nil), nil)
	for _, tt := range []struct {
		limit headgate.Limit
		cfg   httplimit.Config
	}{
		{headgate.Limit{}, httplimit.Config{}},
		{headgate.MustParse("concurrency 3 ttl 30s"), httplimit.Config{}},
		{plenty, httplimit.Config{Retries: 1}},
		{plenty, httplimit.Config{Retries: -1, MaxWait: 1}},
		{plenty, httplimit.Config{MaxWait: -1}},
	} {
		if _, err := httplimit.New(l, tt.limit, &tt.cfg); !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%v, %+v: got %v", tt.limit, tt.cfg, err)
		}
	}
	if _, err := httplimit.New(nil, plenty, nil); err == nil {
		t.Error("no limiter: got no error")
	}
}
