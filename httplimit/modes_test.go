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

func TestModes(t *testing.T) {
	t.Parallel()
	limit := headgate.MustParse("fixed-window 2/1h from-first")
	for name, tt := range map[string]struct {
		mode    httplimit.Mode
		refused int // of 5
		charged string
		fields  bool
	}{
		"shadow": {httplimit.Shadow, 3, "2", false},
		"advise": {httplimit.Advise, 0, "0", true},
	} {
		l := memoryLimiter()
		refused := 0
		h := must(t, l, httplimit.HandlerConfig{
			Mode: tt.mode, Legacy: httplimit.LegacySeconds,
			Charges: []httplimit.Charge{{Limit: limit, Key: httplimit.ByIP}},
			OnDecision: func(_ *http.Request, d *headgate.Decision) {
				if !d.Allowed {
					refused++
				}
			},
		})(answers(204))
		for range 5 {
			w := get(h, "")
			if w.Code != 204 || (w.Header().Get("RateLimit") != "") != tt.fields || w.Header().Get("Retry-After") != "" {
				t.Errorf("%s: %d %v", name, w.Code, w.Header())
			}
		}
		if n := used(t, l, limit, "192.0.2.1"); refused != tt.refused || n != tt.charged {
			t.Errorf("%s: %d refused, %v charged", name, refused, n)
		}
		_, err := l.Take(t.Context(), headgate.Charge{Limit: limit, Key: "192.0.2.1", Cost: headgate.Units(2)})
		if err != nil {
			t.Fatal(err)
		}
		refused = 0
		if w := get(h, ""); w.Code != 204 || refused != 1 || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s, full: %d %v, %d refused", name, w.Code, w.Header(), refused)
		}
		if w := get(h, "X: "+strings.Repeat("x", 3)); w.Code != 204 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// TestShadowServesWhatCannotBeCharged: also where enforcing would answer with 400.
func TestShadowServesWhatCannotBeCharged(t *testing.T) {
	t.Parallel()
	for _, mode := range []httplimit.Mode{httplimit.Shadow, httplimit.Advise} {
		told, read := 0, ""
		h := must(t, memoryLimiter(), httplimit.HandlerConfig{
			Mode: mode, OnError: func(*http.Request, error) { told++ },
			Charges: []httplimit.Charge{{
				Limit: headgate.MustParse("fixed-window 2/1h from-first"), Key: httplimit.ByIP,
				Cost: httplimit.CostByJSONArray("rows", 10),
			}},
		})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			read = string(body)
		}))
		if w := post(h, "", `{"rows":[1,2,3,4]}`); w.Code != 200 || told != 1 || read != `{"rows":[1,2,3,4]}` {
			t.Errorf("%d: %d, told %d times, read %q", mode, w.Code, told, read)
		}
	}
}

func TestShadowLogsWhatItWouldRefuse(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var log bytes.Buffer
	h := must(t, memoryLimiter(), httplimit.HandlerConfig{
		Mode: httplimit.Shadow,
		Charges: []httplimit.Charge{{
			Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: httplimit.ByHeader("Api-Key"),
		}},
		Logger: slog.New(slog.NewTextHandler(writer(func(b []byte) {
			mu.Lock()
			defer mu.Unlock()
			log.Write(b)
		}), nil)),
	})(answers(204))
	for range 2 {
		get(h, "Api-Key: hidden")
	}
	mu.Lock()
	defer mu.Unlock()
	if s := log.String(); strings.Count(s, "\n") != 1 ||
		!strings.Contains(s, "would refuse") || strings.Contains(s, "hidden") {
		t.Errorf("log: %s", s)
	}
}

type writer func([]byte)

func (f writer) Write(b []byte) (int, error) {
	f(b)
	return len(b), nil
}

func TestSkipRefuseStatusFields(t *testing.T) {
	t.Parallel()
	cfg := httplimit.HandlerConfig{
		Charges:  []httplimit.Charge{{Limit: headgate.MustParse("fixed-window 1/1h from-first"), Key: httplimit.ByIP}},
		Skip:     func(r *http.Request) bool { return r.Header.Get("Skip") != "" },
		Status:   http.StatusServiceUnavailable,
		NoFields: true,
		Legacy:   httplimit.LegacySeconds,
	}
	h := must(t, memoryLimiter(), cfg)(answers(204))
	for i, want := range []int{204, 503} {
		w := get(h, "")
		if w.Code != want || w.Header().Get("RateLimit") != "" || w.Header().Get("RateLimit-Policy") != "" ||
			(w.Header().Get("Retry-After") != "") != (want == 503) || w.Header().Get("X-RateLimit-Remaining") != "0" {
			t.Errorf("%d: %d %v", i, w.Code, w.Header())
		}
	}
	if w := get(h, "Skip: 1"); w.Code != 204 || w.Header().Get("X-RateLimit-Remaining") != "" {
		t.Errorf("skipped: %d %v", w.Code, w.Header())
	}
	cfg.Refuse = func(w http.ResponseWriter, _ *http.Request, d *headgate.Decision) {
		http.Error(w, "later, by "+d.LimitName, http.StatusTeapot)
	}
	h = must(t, memoryLimiter(), cfg)(answers(204))
	get(h, "")
	if w := get(h, ""); w.Code != http.StatusTeapot || w.Header().Get("Retry-After") == "" ||
		w.Body.String() != "later, by fixed-window 1/1h from-first\n" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}
