package httplimit_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
)

func TestShadowAndAdviseServeEveryRequest(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 2/1h from-first")
	for name, tt := range map[string]struct {
		mode     httplimit.Mode
		refusals int // of 5 requests
		charged  string
		fields   bool
	}{
		"shadow": {httplimit.Shadow, 3, "2", false},
		"advise": {httplimit.Advise, 0, "0", true},
	} {
		l := memoryLimiter()
		refusals := 0
		h := mustHandler(t, l, httplimit.HandlerConfig{
			Mode: tt.mode, Legacy: httplimit.LegacySeconds,
			Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
			OnDecision: func(_ *http.Request, d *headgate.Decision) {
				if !d.Allowed {
					refusals++
				}
			},
		})(respondWith(204))
		for range 5 {
			w := send(h, "")
			if w.Code != 204 || (w.Header().Get("RateLimit") != "") != tt.fields || w.Header().Get("Retry-After") != "" {
				t.Errorf("%s: got %d %v, want 204", name, w.Code, w.Header())
			}
		}
		if n := usedUnits(t, l, limit, "192.0.2.1"); refusals != tt.refusals || n != tt.charged {
			t.Errorf("%s: got %d refusals, %v charged; want %d, %s", name, refusals, n, tt.refusals, tt.charged)
		}
		_, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "192.0.2.1", Cost: headgate.Units(2)})
		if err != nil {
			t.Fatal(err)
		}
		refusals = 0
		if w := send(h, ""); w.Code != 204 || refusals != 1 || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s, full: got %d %v, %d refusals; want 204, 1", name, w.Code, w.Header(), refusals)
		}
	}
}

// TestShadowServesWhatCannotBeCharged checks that Shadow and Advise serve a request whose cost cannot be read.
func TestShadowServesWhatCannotBeCharged(t *testing.T) {
	t.Parallel()
	for _, mode := range []httplimit.Mode{httplimit.Shadow, httplimit.Advise} {
		errCount, handlerBody := 0, ""
		h := mustHandler(t, memoryLimiter(), httplimit.HandlerConfig{
			Mode: mode, OnError: func(*http.Request, error) { errCount++ },
			Charges: []httplimit.Charge{{
				Limit: headgate.MustParse("fixed-window 2/1h from-first"), Key: httplimit.ByIP,
				Cost: httplimit.CostByJSONArray("rows", 10),
			}},
		})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			handlerBody = string(body)
		}))
		if w := sendBody(h, "", `{"rows":[1,2,3,4]}`); w.Code != 200 || errCount != 1 || handlerBody != `{"rows":[1,2,3,4]}` {
			t.Errorf("mode %d: got %d, %d errors, body %q", mode, w.Code, errCount, handlerBody)
		}
	}
}

func TestShadowLogsWhatItWouldRefuse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	h := mustHandler(t, memoryLimiter(), httplimit.HandlerConfig{
		Mode: httplimit.Shadow,
		Charges: []httplimit.Charge{{
			Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: httplimit.ByHeader("Api-Key"),
		}},
		Logger: slog.New(slog.NewTextHandler(writerFunc(func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			log.Write(b)
		}), nil)),
	})(respondWith(204))
	for range 2 {
		send(h, "Api-Key: hidden")
	}
	mu.Lock()
	defer mu.Unlock()
	if s := log.String(); strings.Count(s, "\n") != 1 ||
		!strings.Contains(s, "would refuse") || strings.Contains(s, "hidden") {
		t.Errorf("got log %s, want one line without the key", s)
	}
}

// writerFunc is an io.Writer that is a function.
type writerFunc func([]byte)

func (f writerFunc) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func TestSkipRefuseStatusAndFieldsOptions(t *testing.T) {
	t.Parallel()
	cfg := httplimit.HandlerConfig{
		Charges:  []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: httplimit.ByIP}},
		Skip:     func(r *http.Request) bool { return r.Header.Get("Skip") != "" },
		Status:   http.StatusServiceUnavailable,
		NoFields: true,
		Legacy:   httplimit.LegacySeconds,
	}
	h := mustHandler(t, memoryLimiter(), cfg)(respondWith(204))
	for i, want := range []int{204, 503} {
		w := send(h, "")
		if w.Code != want || w.Header().Get("RateLimit") != "" || w.Header().Get("RateLimit-Policy") != "" ||
			(w.Header().Get("Retry-After") != "") != (want == 503) || w.Header().Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("request %d: got %d %v, want %d", i, w.Code, w.Header(), want)
		}
	}
	if w := send(h, "Skip: 1"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "" {
		t.Errorf("skipped: got %d %v, want 204 without fields", w.Code, w.Header())
	}
	cfg.Refuse = func(w http.ResponseWriter, _ *http.Request, d *headgate.Decision) {
		http.Error(w, "later, by "+d.LimitName, http.StatusTeapot)
	}
	h = mustHandler(t, memoryLimiter(), cfg)(respondWith(204))
	send(h, "")
	if w := send(h, ""); w.Code != http.StatusTeapot || w.Header().Get("Retry-After") == "" ||
		w.Body.String() != "later, by fixed-window 1/1h from-first\n" {
		t.Errorf("with Refuse: got %d %v %s", w.Code, w.Header(), w.Body)
	}
}
