package rest_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// unreadCatalog is a catalog that was never read.
type unreadCatalog struct{ *config.Config }

func (unreadCatalog) Err() error { return store.ErrUnavailable }

func TestLimitsOfACatalogThatWasNeverReadAre503(t *testing.T) {
	t.Parallel()
	h := rest.New(service.New(headgate.New(memory.New(nil), nil), &config.Config{}, unreadCatalog{&config.Config{}}),
		slog.New(slog.DiscardHandler), nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/limits", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d, want 503: %s", w.Code, w.Body)
	}
}

func TestBadRequestsAreProblemsThatNameTheField(t *testing.T) {
	t.Parallel()
	h, s := newHandler(t, "limits:\n  login: token-bucket 5/1m\n")
	for _, tt := range []struct {
		method, path, body string
		status             int
		field, want        string
	}{
		{"POST", "/v1/take", `{"limit":"nope","key":"k"}`, 400, "limit", "login"},
		{"POST", "/v1/take", `{"limit":"token-bucket 5/s","key":"k"}`, 400, "limit", "notations are not accepted"},
		{"POST", "/v1/take", `{"key":"k"}`, 400, "limit", "missing"},
		{"POST", "/v1/take", `{"limit":"login","key":"` + strings.Repeat("k", 513) + `"}`, 400, "key", "513"},
		{"POST", "/v1/take", `{"limit":"login","key":"a\u0000b"}`, 400, "key", "NUL"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":0}`, 400, "cost", "above 0"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":-1}`, 400, "cost", "negative"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":0e3}`, 400, "cost", "above 0"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":-0.0}`, 400, "cost", "above 0"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":1e300}`, 400, "cost", "too large"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":1e999999999}`, 400, "cost", "exponent"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":"NaN"}`, 400, "cost", "NaN"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","cost":NaN}`, 400, "body", "not JSON"},
		{"POST", "/v1/take", `{"limit":"login","key":7}`, 400, "key", "number"},
		{"POST", "/v1/take", `{"limit":"login","kye":"k"}`, 400, "body", `"kye"`},
		{"POST", "/v1/take", `{"limit":"login","key":"k"} {}`, 400, "body", "follows"},
		{"POST", "/v1/take", ``, 400, "body", "empty"},
		{"POST", "/v1/take", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/take", `{"limit":"login","key":null}`, 400, "key", "missing"},
		{"POST", "/v1/take", `{"charges":[{"limit":"login","key":"k"},{"limit":"login"}]}`, 400, "key", "missing"},
		{"POST", "/v1/check", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/fill-up", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/fill-up", `{"limit":"nope","key":"k"}`, 400, "limit", "login"},
		{"POST", "/v1/fill-up", `{"limit":"login","key":"k","cost":0}`, 400, "cost", "above 0"},
		{"POST", "/v1/fill-up", `{"limit":"login","key":"k","id":"x"}`, 400, "id", "fill-up"},
		{"POST", "/v1/fill-up", `{"limit":"login","key":"k","life":"1h"}`, 400, "id", "fill-up"},
		{"POST", "/v1/fill-up", `{"limit":"login","key":"k","check":true}`, 400, "check", "batch"},
		{"POST", "/v1/fill-up", `{"charges":[{"limit":"login","key":"k"},{"limit":"login","key":"l"}]}`, 400, "charges", "one"},
		{"POST", "/v1/fill-up", `{"limit":"login","kye":"k"}`, 400, "body", `"kye"`},
		{"POST", "/v1/reserve", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/acquire", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/settle", `{"limit":"login","cost":1,"id":"x"}`, 400, "key", "missing"},
		{"POST", "/v1/cancel", `{"charges":[{"limit":"login"}],"id":"x"}`, 400, "key", "missing"},
		{"POST", "/v1/renew", `{"held":[{"limit":"login","number":1}]}`, 400, "key", "missing"},
		{"POST", "/v1/release", `{"held":[{"limit":"login","number":1}]}`, 400, "key", "missing"},
		{"POST", "/v1/inspect", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/inspect", `{"limit":"login","key":"k","attempts":10001}`, 400, "attempts", "from 0 to 10000"},
		{"POST", "/v1/inspect", `{"limit":"login","key":"k","attempts":"1"}`, 400, "attempts", "number"},
		{"POST", "/v1/reset", `{"limit":"login"}`, 400, "key", "missing"},
		{"POST", "/v1/block", `{"limit":"login","for":"1h"}`, 400, "key", "missing"},
		{"POST", "/v1/observe", `{"limit":"login","status":429,"headers":{}}`, 400, "key", "missing"},
		{"POST", "/v1/observe", `{"limit":"login","key":"k","status":42,"headers":{}}`, 400, "status", "42"},
		{"POST", "/v1/observe", `{"limit":"login","key":"k","status":429,"headers":{"a":"1","a":"2"}}`, 400, "a", "twice"},
		{"POST", "/v1/observe", `{"limit":"login","key":"k","status":429,"headers":{"a":1}}`, 400, "a", "must be text"},
		{"POST", "/v1/reset", `{"key":"k"}`, 400, "limit", "missing"},
		{"POST", "/v1/take", `{"limit":"login","key":"\ud800"}`, 400, "key", `\ud800`},
		{"POST", "/v1/take", "{\"limit\":\"login\",\"key\":\"\xff\"}", 400, "key", "UTF-8"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","key":"\ud800"}]}`, 400, "key", `\ud800`},
		{"POST", "/v1/batch", "{\"requests\":[{\"limit\":\"login\",\"key\":\"\xff\"}]}", 400, "key", "UTF-8"},
		{"POST", "/v1/take", `{"limit":"login","key":"a","KEY":"c"}`, 400, "body", `"KEY"; names are in lower case`},
		{"POST", "/v1/take", `{"limit":"login","key":"a","key":"c"}`, 400, "key", "twice"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","key":"a","key":"c"}]}`, 400, "key", "twice"},
		{"POST", "/v1/take", `{"charges":[{"limit":"login","key":"a","Key":"c"}]}`, 400, "body", `"Key"`},
		{"POST", "/v1/take", `{"limit":"login","key":"al`, 400, "body", "ends in the middle (after byte 26)"},
		{
			"POST", "/v1/batch", `{"requests":[{"limit":"login","key":"al`, 400, "body",
			"ends in the middle (after byte 39)",
		},
		{"POST", "/v1/take", `{"limit":"login","key":"k","check":true}`, 400, "check", "batch"},
		{
			"POST", "/v1/take", `{"limit":"login","key":"k","charges":[{"limit":"login","key":"k"}]}`, 400,
			"charges", "beside",
		},
		{"POST", "/v1/take", `{"limit":"login","key":"k","life":"1h"}`, 400, "life", "without an id"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","id":"x","life":"soon"}`, 400, "life", "soon"},
		{"POST", "/v1/take", `{"limit":"login","key":"k","id":"` + strings.Repeat("x", 256) + `"}`, 400, "id", "256"},
		{"POST", "/v1/check", `{"limit":"login","key":"k","id":"x"}`, 400, "id", "takes"},
		{"POST", "/v1/reserve", `{"limit":"login","key":"k","wait":"-1s"}`, 400, "wait", "-1s"},
		{"POST", "/v1/acquire", `{"limit":"login","key":"k"}`, 400, "limit", "concurrency"},
		{"POST", "/v1/acquire", `{"limit":"login","key":"k","id":"x"}`, 400, "id", "held"},
		{"POST", "/v1/renew", `{}`, 400, "held", "none"},
		{"POST", "/v1/release", `{"held":[{"limit":"login","key":"k","number":1}]}`, 400, "limit", "not acquired"},
		{"POST", "/v1/debit", `{"limit":"login","key":"k","cost":1}`, 400, "id", "missing"},
		{"POST", "/v1/debit", `{"charges":[{"limit":"login","key":"k"},{"limit":"login","key":"l"}],"id":"x"}`, 400, "charges", "one"},
		{"POST", "/v1/debit", `{"limit":"login","key":"k","cost":1,"keep":"10%","id":"x"}`, 400, "keep", "meaning"},
		{"POST", "/v1/refund", `{"limit":"login","cost":1}`, 400, "key", "missing"},
		{"POST", "/v1/refund", `{"limit":"login","key":"k","cost":0}`, 400, "cost", "above 0"},
		{"POST", "/v1/refund", `{"limit":"login","key":"k","id":"x"}`, 400, "body", "unknown field"},
		{"POST", "/v1/extend", `{"limit":"login","key":"k","cost":1}`, 400, "id", "missing"},
		{"POST", "/v1/extend", `{"limit":"login","key":"k","id":"x","cost":0}`, 400, "cost", ""},
		{"POST", "/v1/extend", `{"limit":"login","key":"k","id":"x","check":true}`, 400, "check", "batch"},
		{"POST", "/v1/extend", `{"limit":"login","key":"k","id":"x","cost":1}`, 404, "id", "known"},
		{"POST", "/v1/settle", `{"limit":"login","key":"k","cost":1}`, 400, "id", "missing"},
		{"POST", "/v1/settle", `{"limit":"login","key":"k","id":"x"}`, 400, "cost", "0 for nothing"},
		{"POST", "/v1/settle", `{"limit":"login","key":"k","id":"x","cost":-1}`, 400, "cost", "negative"},
		{"POST", "/v1/settle", `{"limit":"login","key":"k","id":"x","cost":1}`, 404, "id", "known"},
		{"POST", "/v1/cancel", `{"limit":"login","key":"k","id":"x","cost":1}`, 400, "cost", "settle"},
		{"POST", "/v1/cancel", `{"limit":"login","key":"k","id":"x"}`, 404, "id", "known"},
		{"POST", "/v1/cancel", `{"limit":"login","key":"k"}`, 400, "id", "missing"},
		{"POST", "/v1/batch", `{"requests":[]}`, 400, "requests", "none"},
		{"POST", "/v1/batch", ``, 400, "body", "empty"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","kye":"k"}]}`, 400, "body", `"kye"`},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","key":7}]}`, 400, "key", "number"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","cost":NaN}]}`, 400, "body", "not JSON (at byte 38)"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login","cost":"NaN"}]}`, 400, "cost", "NaN"},
		{"POST", "/v1/batch", `{"requests":[{"limit":"login"}]} {}`, 400, "body", "follows"},
		{
			"POST", "/v1/batch", `{"requests":[{"charges":[` + strings.Repeat(`{"limit":"login"},`, 5000) +
				`{"limit":"login"}]},{"charges":[` + strings.Repeat(`{"limit":"login"},`, 5000) + `{"limit":"login"}]}]}`,
			400, "requests", "10000",
		},
		{"POST", "/v1/batch", `{"requests":[{"limit":"` + strings.Repeat("x", 5<<20) + `"}]}`, 413, "", "bytes"},
		{"POST", "/v1/block", `{"limit":"login","key":"k","for":"soon"}`, 400, "for", "soon"},
		{"POST", "/v1/take", `{"limit":"` + strings.Repeat("x", 5<<20) + `"}`, 413, "", "bytes"},
		{"GET", "/v1/take", ``, 405, "", "GET"},
		{"GET", "/nothing", ``, 404, "", "/nothing"},
		{"GET", "/v1/cells?max=0", ``, 400, "max", "10000"},
		{"GET", "/v1/cells?max=x", ``, 400, "max", `"x"`},
		{"GET", "/v1/cells?max=1&max=2", ``, 400, "max", "2 times"},
		{"GET", "/v1/cells?blocked=perhaps", ``, 400, "blocked", "true or false"},
		{"GET", "/v1/cells?nax=1", ``, 400, "query", `"nax"`},
		{"GET", "/v1/cells?after_key=%zz", ``, 400, "query", "%zz"},
		{"GET", "/v1/cells?after_key=a;b", ``, 400, "query", "semicolon"},
		{"GET", "/v1/cells?after_limit=a&after_key=%00", ``, 400, "after_key", "NUL"},
		{"GET", "/v1/cells?after_limit=a&after_key=%bf%27", ``, 400, "after_key", "UTF-8"},
		{"GET", "/v1/cells?after_limit=%ff", ``, 400, "after_limit", "UTF-8"},
		{"GET", "/v1/cells?limit=%00", ``, 400, "limit", "NUL"},
		{"GET", "/v1/cells?after_key=" + strings.Repeat("k", 513), ``, 400, "after_key", "513"},
		{"DELETE", "/v1/cells", ``, 405, "", "DELETE"},
		{"GET", "/v1/usage", ``, 400, "key", "missing"},
		{"GET", "/v1/usage?limit=login", ``, 400, "key", "missing"},
		{"GET", "/v1/usage?key=a&key=b", ``, 400, "key", "2 times"},
		{"GET", "/v1/usage?key=%00", ``, 400, "key", "NUL"},
		{"GET", "/v1/usage?key=%ff", ``, 400, "key", "UTF-8"},
		{"GET", "/v1/usage?key=" + strings.Repeat("k", 513), ``, 400, "key", "513"},
		{"GET", "/v1/usage?key=k&limit=nope", ``, 400, "limit", "login"},
		{"GET", "/v1/usage?key=k&limit=login&limit=nope", ``, 400, "limit", "login"},
		{"GET", "/v1/usage?key=k&limit=", ``, 400, "limit", "missing"},
		{"GET", "/v1/usage?key=k&limit=%00", ``, 400, "limit", "NUL"},
		{"GET", "/v1/usage?key=k&limit=token-bucket%205/s", ``, 400, "limit", "notations are not accepted"},
		{"GET", "/v1/usage?key=k&authors=x", ``, 400, "authors", "true or false"},
		{"GET", "/v1/usage?kye=k", ``, 400, "query", "unknown parameter"},
		{"GET", "/v1/usage?key=k&max=1", ``, 400, "query", `"max"`},
		{"GET", "/v1/usage?key=%zz", ``, 400, "query", "%zz"},
		{"POST", "/v1/usage", `{"key":"k"}`, 405, "", "POST"},
		{"GET", "/v1/traffic?limit=nope", ``, 400, "limit", "login"},
		{"GET", "/v1/traffic?limit=%00", ``, 400, "limit", "NUL"},
		{"GET", "/v1/traffic?by=key", ``, 400, "by", "refused or used"},
		{"GET", "/v1/traffic?top=101", ``, 400, "top", "from 0 to 100"},
		{"GET", "/v1/traffic?seconds=0", ``, 400, "seconds", "from 1 to 300"},
		{"GET", "/v1/traffic?top=1&top=2", ``, 400, "top", "2 times"},
		{"GET", "/v1/traffic?max=1", ``, 400, "query", `"max"`},
		{"BREW", "/v1/take", ``, 405, "", "BREW"},
	} {
		code, out, header := send(h, tt.method, tt.path, tt.body)
		field, _ := out["field"].(string)
		detail, _ := out["detail"].(string)
		if code != tt.status || field != tt.field || !strings.Contains(detail, tt.want) ||
			header.Get("Content-Type") != "application/problem+json" || out["title"] == "" ||
			out["status"] != float64(tt.status) {
			t.Errorf("%s %.60s: status %d, %v; want %d about %q saying %q", tt.path, tt.body, code, out, tt.status,
				tt.field, tt.want)
		}
	}
	if _, out, _ := send(h, "GET", "/v1/cells", ""); len(out["cells"].([]any)) != 0 {
		t.Errorf("got %v, want no cell: a bad request charges nothing", out)
	}
	_ = s.Close()
	if code, out, _ := send(h, "POST", "/v1/take", `{"limit":"login","key":"k"}`); code != 503 {
		t.Errorf("with the store closed: status %d, %v, want 503", code, out)
	}
	for path, want := range map[string]int{"/healthz": 503, "/readyz": 503, "/livez": 200} {
		if code, _, _ := send(h, "GET", path, ""); code != want {
			t.Errorf("%s with the store closed: status %d, want %d", path, code, want)
		}
	}
}

// TestProblemsRepeatLittle checks that problems have at most 8 KiB, whatever they quote: their memory is not counted.
func TestProblemsRepeatLittle(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	for _, tt := range []struct{ method, path string }{
		{"GET", "/" + strings.Repeat("<", 60_000)},
		{"GET", "/" + strings.Repeat("%01", 20_000)},
		{strings.Repeat("A", 60_000), "/v1/take"},
		{"GET", "/v1/cells?" + strings.Repeat("<", 60_000) + "=1"},
		{"GET", "/v1/cells?max=" + strings.Repeat("<", 60_000)},
		{"GET", "/v1/cells?limit=" + strings.Repeat("<", 60_000)},
		{"GET", "/v1/cells?after_key=" + strings.Repeat("%zz", 20_000)},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(tt.method, tt.path, nil))
		if w.Code < 400 || w.Body.Len() > 8<<10 {
			t.Errorf("%.10s %.40s: status %d, %d bytes, want a problem of at most 8 KiB", tt.method, tt.path, w.Code,
				w.Body.Len())
		}
	}
}
