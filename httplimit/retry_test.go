package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/httplimit"
)

// TestSetRetryAfter checks the fields of a refusal and its pushback: waits are rounded up, and fit timers of 31 bits.
func TestSetRetryAfter(t *testing.T) {
	t.Parallel()
	const day, never = 24 * time.Hour, headgate.Never
	for _, tt := range []struct {
		wait         time.Duration
		after        string // Retry-After
		millis       string // Retry-After-Ms
		shouldMinute string // X-Should-Retry, with NoRetryBeyond of a minute
		shouldHour   string // X-Should-Retry, with NoRetryBeyond of an hour
		pushback     int64
	}{
		{time.Microsecond, "1", "1", "", "", 1},
		{time.Second, "1", "", "", "", 1000},
		{1500 * time.Millisecond, "2", "1500", "", "", 1500},
		{2*time.Second - time.Microsecond, "2", "", "", "", 2000},
		{59*time.Second + time.Microsecond, "60", "59001", "", "", 59_001},
		{time.Minute, "60", "", "", "", 60_000},
		{time.Minute + time.Millisecond, "61", "", "false", "", -1},
		{90*time.Second + time.Millisecond, "91", "", "false", "", -1},
		{time.Hour, "3600", "", "false", "", -1},
		{2147483 * time.Second, "2147483", "", "false", "false", -1},
		{30 * day, "2147483", "", "false", "false", -1},
		{never, "", "", "false", "false", -1},
	} {
		for noRetryBeyond, should := range map[time.Duration]string{
			0: "", httplimit.DefaultNoRetryBeyond: tt.shouldMinute, time.Hour: tt.shouldHour,
		} {
			h := http.Header{"Retry-After": {"old"}, "Retry-After-Ms": {"old"}, "X-Should-Retry": {"old"}}
			httplimit.SetRetryAfter(h, &headgate.Decision{RetryAfter: tt.wait}, noRetryBeyond)
			after, millis := h.Get("Retry-After"), h.Get("Retry-After-Ms")
			if after != tt.after || millis != tt.millis || h.Get("X-Should-Retry") != should {
				t.Errorf("%v, no retry beyond %v: got %v", tt.wait, noRetryBeyond, h)
			}
		}
		if got := httplimit.PushbackMillis(&headgate.Decision{RetryAfter: tt.wait}, 0); got != tt.pushback {
			t.Errorf("%v: got a pushback of %d, want %d", tt.wait, got, tt.pushback)
		}
	}
	h := http.Header{"Retry-After": {"old"}, "X-Should-Retry": {"old"}}
	if httplimit.SetRetryAfter(h, &headgate.Decision{Allowed: true}, time.Minute); len(h) != 0 {
		t.Errorf("an admission: got %v, want no fields", h)
	}
	if got := httplimit.PushbackMillis(&headgate.Decision{RetryAfter: 30 * day}, never-1); got != 1<<31-1 {
		t.Errorf("30 days: got a pushback of %d, want %d", got, 1<<31-1)
	}
}

// TestMiddlewareWritesRetryAfter checks that a request passes after Retry-After-Ms, also with a Refuse function.
func TestMiddlewareWritesRetryAfter(t *testing.T) {
	t.Parallel()
	for _, hasRefuse := range []bool{false, true} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			cfg := httplimit.HandlerConfig{NoRetryBeyond: time.Minute, Charges: []httplimit.Charge{
				{
					Limit: headgate.MustParse("token-bucket 4/5s burst 2"), Key: httplimit.ByIP,
					Cost: httplimit.CostByHeader("Cost"),
				},
			}}
			if hasRefuse {
				cfg.Refuse = func(w http.ResponseWriter, _ *http.Request, _ *headgate.Decision) {
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}
			h := mustHandler(t, l, cfg)(respondWith(204))
			send(h, "Cost: 2")
			w := send(h, "Cost: 1")
			if w.Code != 429 || w.Header().Get("Retry-After") != "2" || w.Header().Get("Retry-After-Ms") != "1250" ||
				w.Header().Get("X-Should-Retry") != "" {
				t.Errorf("got %d %v, want 429 and 1250 ms", w.Code, w.Header())
			}
			w = send(h, "Cost: 3")
			if w.Header().Get("Retry-After") != "" || w.Header().Get("X-Should-Retry") != "false" {
				t.Errorf("a cost above the burst: got %v, want no Retry-After", w.Header())
			}
			headgatetest.Advance(1250 * time.Millisecond)
			if w = send(h, "Cost: 1"); w.Code != 204 || w.Header().Get("Retry-After") != "" {
				t.Errorf("after 1250 ms: got %d %v, want 204", w.Code, w.Header())
			}
		})
	}
}

// TestPacingByRateLimitAvoidsRefusals checks that no client that obeys RateLimit is refused, and how long it takes.
func TestPacingByRateLimitAvoidsRefusals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		notation string
		think    time.Duration // the pause before each request
		want     time.Duration // the time of six requests
	}{
		{"token-bucket 2/10m", 0, 20 * time.Minute},
		{"token-bucket 1/90s burst 1", 0, 450 * time.Second},
		{"token-bucket 3/10s burst 1", 0, 20 * time.Second}, // seconds are rounded up
		{"gcra 2/10m burst 2", 0, 20 * time.Minute},
		{"leaky-bucket 2/10m capacity 3", 0, 15 * time.Minute},
		{"interval 2/10m burst 4", 0, 10 * time.Minute},
		{"fixed-window 2/10m", 0, 20 * time.Minute},
		{"fixed-window 2/hour", 0, 2 * time.Hour},
		{"fixed-window 2/10m from-first", 0, 20 * time.Minute},
		{"sliding-window 2/10m", 0, 40 * time.Minute},
		{"sliding-log 2/10m", 0, 20 * time.Minute},
		{"token-bucket 5/m burst 1.5", 0, 54 * time.Second},
		{"sliding-log 2/10m", 4 * time.Minute, 28 * time.Minute}, // the entries expire one by one
	} {
		headgatetest.Run(t, func(t *testing.T, l *headgate.Limiter) {
			limit := headgate.MustParse(tt.notation)
			h := httplimit.Handler(l, limit, httplimit.ByIP)(respondWith(204))
			rt, err := httplimit.New(l, fastLimit, &httplimit.Config{
				MaxWait: headgate.Never,
				Next: roundTripFunc(func(r *http.Request) (*http.Response, error) {
					r = r.Clone(r.Context())
					r.RemoteAddr = "192.0.2.1:1"
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					return w.Result(), nil
				}),
			})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			for i := range 6 {
				time.Sleep(tt.think)
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://far/", nil)
				resp, err := rt.RoundTrip(r)
				if err != nil {
					t.Fatalf("%s: request %d: %v", tt.notation, i, err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusNoContent {
					t.Errorf("%s: request %d, after %v: got %s, want 204", tt.notation, i, time.Since(begin), resp.Status)
				}
			}
			if took := time.Since(begin).Round(time.Second); took != tt.want {
				t.Errorf("%s: six requests took %v, want %v", tt.notation, took, tt.want)
			}
		})
	}
}
