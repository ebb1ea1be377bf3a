package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// newHandler returns a handler with a configuration, and its store in memory.
func newHandler(t *testing.T, yamlText string) (http.Handler, *memory.Store) {
	t.Helper()
	c := &config.Config{}
	if yamlText != "" {
		var err error
		if c, err = config.Parse("c.yaml", []byte(yamlText)); err != nil {
			t.Fatal(err)
		}
	}
	s := memory.New(&memory.Config{Names: true})
	return rest.New(service.New(headgate.New(s, &headgate.Config{Names: c}), c, nil),
		slog.New(slog.DiscardHandler), nil), s
}

// send sends a request, and returns the status, the JSON and the header of the answer.
func send(h http.Handler, method, path, body string) (status int, out map[string]any, header http.Header) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	_ = json.Unmarshal(w.Body.Bytes(), &out)
	return w.Code, out, w.Header()
}

func TestADecisionIsAlwaysStatus200(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	for i, tt := range []struct {
		body       string
		allowed    bool
		retryAfter any
	}{
		{`{"limit":"token-bucket 1/1h","key":"a"}`, true, 0.0},
		{`{"limit":"token-bucket 1/1h","key":"a"}`, false, "some"},
		{`{"limit":"token-bucket 1/1h","key":"a","cost":2}`, false, nil},
		{`{"limit":"token-bucket 1/1h","key":"b","cost":0.25}`, true, 0.0},
		{
			`{"charges":[{"limit":"token-bucket 5/1h","key":"c"},{"limit":"token-bucket 1/1h","key":"a"}]}`,
			false, "some",
		},
	} {
		code, out, header := send(h, "POST", "/v1/take", tt.body)
		if code != 200 || out["allowed"] != tt.allowed || header.Get("Content-Type") != "application/json" {
			t.Errorf("%d: status %d, %v", i, code, out)
		}
		if got := out["retry_after_ms"]; tt.retryAfter == "some" && (got == nil || got == 0.0) ||
			tt.retryAfter != "some" && got != tt.retryAfter {
			t.Errorf("%d: retry_after_ms %v, want %v", i, got, tt.retryAfter)
		}
		for _, name := range []string{"limit", "remaining", "reset_after_ms", "at"} {
			if out[name] == nil {
				t.Errorf("%d: %s is missing: %v", i, name, out)
			}
		}
	}
	if code, out, _ := send(h, "POST", "/v1/check", `{"limit":"token-bucket 5/1h","key":"c"}`); code != 200 ||
		out["remaining"] != 5.0 {
		t.Errorf("c after a refused request: status %d, %v, want 5 remaining", code, out)
	}
}

func TestBatchAnswersInOrderAndFailsOneByOne(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	code, out, _ := send(h, "POST", "/v1/batch", `{"requests":[
		{"limit":"token-bucket 1/1h","key":"a"}, {"limit":"token-bucket 1/1h","key":"a"},
		{"limit":"nope","key":"a"}, {"limit":"token-bucket 1/1h","key":"b","check":true}, {"limit":"token-bucket 1/1h","key":"b"},
		{"charges":[{"limit":"token-bucket 9/1h","key":"c"},{"limit":"token-bucket 1/1h","key":"d"}]}, {"charges":[{"key":"c"}],"key":"d"},
		{"limit":"token-bucket 1/1h"}, {}, {"limit":"token-bucket 1/1h","key":""}]}`)
	if code != 200 {
		t.Fatalf("status %d, %v", code, out)
	}
	if key := out["answers"].([]any)[5].(map[string]any)["key"]; key != "d" {
		t.Errorf("the decision about several charges has the key %v, want d", key)
	}
	var got []any
	for _, element := range out["answers"].([]any) {
		answer := element.(map[string]any)
		if problem, ok := answer["problem"].(map[string]any); ok {
			got = append(got, problem["status"])
		} else {
			got = append(got, answer["allowed"])
		}
	}
	if want := []any{true, false, 400.0, true, true, true, 400.0, 400.0, 400.0, true}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAFillUpTakesWhatFits(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "allow_notations: true\nlimits:\n  month: fixed-window 10/1h from-first\n")
	for i, step := range []struct {
		body string
		want map[string]any
	}{
		{`{"limit":"month","key":"k","cost":7.5}`, map[string]any{
			"allowed": true, "accepted": 7.5, "level": 7.5, "brim": false, "capacity": 10.0, "remaining": 2.0,
		}},
		{`{"charges":[{"limit":"month","key":"k","cost":"100"}]}`, map[string]any{
			"allowed": true, "accepted": 2.5, "level": 10.0, "brim": true, "remaining": 0.0, "retry_after_ms": 0.0,
		}},
		{`{"limit":"month","key":"k"}`, map[string]any{
			"allowed": false, "accepted": 0.0, "level": 10.0, "brim": true, "limit": "month",
		}},
		{`{"limit":"month","key":"l"}`, map[string]any{"allowed": true, "accepted": 1.0, "level": 1.0}},
		{`{"limit":"0","key":"k"}`, map[string]any{
			"allowed": false, "accepted": 0.0, "retry_after_ms": nil, "applied": nil,
		}},
	} {
		code, out, _ := send(h, "POST", "/v1/fill-up", step.body)
		if code != http.StatusOK {
			t.Fatalf("step %d: status %d, %v", i, code, out)
		}
		for name, want := range step.want {
			if out[name] != want {
				t.Errorf("step %d: %s is %v, want %v: %v", i, name, out[name], want, out)
			}
		}
		if retry, _ := out["retry_after_ms"].(float64); i == 2 && (retry <= 0 || retry > 3600_000) {
			t.Errorf("step %d: %v, want a retry within an hour", i, out)
		}
	}
}

// TestUsageInJSON checks the members of an answer of /v1/usage, of a key with one refusal and of the empty key.
func TestUsageInJSON(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "limits:\n  login: fixed-window 1/1h from-first\n  api: token-bucket 5/1m\n")
	for range 2 {
		send(h, "POST", "/v1/take", `{"limit":"login","key":"a b"}`)
	}
	code, out, header := send(h, "GET", "/v1/usage?key=a+b", "")
	limits, _ := out["limits"].([]any)
	if code != 200 || len(limits) != 2 || out["key"] != "a b" || header.Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d, %v", code, out)
	}
	var login map[string]any
	for _, l := range limits {
		if l := l.(map[string]any); l["limit"] == "login" {
			login = l
		}
	}
	for name, want := range map[string]any{
		"key": "a b", "exists": true, "rule": "fixed-window 1/1h from-first", "used": 1.0, "capacity": 1.0,
		"remaining": 0.0, "blocked_until": nil, "applied": nil, "blocked_by": nil, "applied_until": nil,
	} {
		if login[name] != want {
			t.Errorf("%s is %v, want %v", name, login[name], want)
		}
	}
	retry, _ := login["retry_after_ms"].(float64)
	hint, _ := login["hint"].(string)
	if reset, _ := login["reset_after_ms"].(float64); retry <= 0 || retry > 3600_000 || reset < retry ||
		!strings.HasSuffix(hint, "headgate override 'a b' login 'NEW LIMIT'") {
		t.Errorf("login: %v, want a retry within an hour, a later reset, and a hint", login)
	}
	refusals, _ := out["refusals"].([]any)
	if len(refusals) != 1 {
		t.Fatalf("refusals: %v", out)
	}
	refusal := refusals[0].(map[string]any)
	if wait, _ := refusal["retry_after_ms"].(float64); refusal["limit"] != "login" || refusal["cost"] != 1.0 ||
		wait < retry || refusal["at"] == nil {
		t.Errorf("refusal: %v, want one of login with cost 1", refusal)
	}
	if _, out, _ = send(h, "GET", "/v1/usage?key=&limit=api&limit=api", ""); len(out["limits"].([]any)) != 2 ||
		len(out["refusals"].([]any)) != 0 {
		t.Errorf("an empty key and a limit twice: %v, want 2 limits and no refusal", out)
	}
}

// equal compares lists by their JSON.
func equal(a, b []any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestRequestsWithAnID(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	for i, step := range []struct {
		path, body string
		status     int
		want       map[string]any
	}{
		{
			"/v1/reserve", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":5,"id":"a"}`, 200,
			map[string]any{"allowed": true, "replayed": nil, "delay_ms": 0.0},
		},
		{
			"/v1/reserve", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":5,"id":"a"}`, 200,
			map[string]any{"allowed": true, "replayed": true},
		},
		{
			"/v1/reserve", `{"limit":"token-bucket 1/1h burst 5","key":"k","wait":"1m"}`, 200,
			map[string]any{"allowed": false, "start_at": nil, "delay_ms": nil},
		},
		{
			"/v1/take", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":4,"id":"a","life":"2h"}`, 409,
			map[string]any{"field": "id"},
		},
		{
			"/v1/extend", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":7,"id":"a"}`, 200,
			map[string]any{"allowed": false},
		},
		{"/v1/settle", `{"charges":[{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2}],"id":"a"}`, 200, nil},
		{"/v1/settle", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2,"id":"a"}`, 200, nil},
		{
			"/v1/settle", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":0,"id":"a"}`, 409,
			map[string]any{"field": "id"},
		},
		{
			"/v1/take", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2.9,"id":"b"}`, 200,
			map[string]any{"allowed": true},
		},
		{"/v1/settle", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":0,"id":"b"}`, 200, nil},
		{
			"/v1/take", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2.9,"id":"b"}`, 200,
			map[string]any{"allowed": true, "replayed": true},
		},
		{"/v1/cancel", `{"limit":"token-bucket 1/1h burst 5","key":"k","id":"b"}`, 409, map[string]any{"field": "id"}},
		{"/v1/extend", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":4,"id":"b"}`, 409, nil},
		{
			"/v1/take", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2.9,"id":"c"}`, 200,
			map[string]any{"allowed": true},
		},
		{
			"/v1/extend", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2.99,"id":"c"}`, 200,
			map[string]any{"allowed": true, "replayed": nil, "remaining": 0.0},
		},
		{"/v1/cancel", `{"charges":[{"limit":"token-bucket 1/1h burst 5","key":"k"}],"id":"c"}`, 200, nil},
		{
			"/v1/take", `{"limit":"token-bucket 1/1h burst 5","key":"k","cost":2.9,"id":"c"}`, 200,
			map[string]any{"allowed": true, "replayed": nil},
		},
	} {
		code, out, _ := send(h, "POST", step.path, step.body)
		if code != step.status {
			t.Errorf("step %d: status %d, %v", i, code, out)
		}
		for name, want := range step.want {
			if out[name] != want {
				t.Errorf("step %d: %s is %v, want %v", i, name, out[name], want)
			}
		}
	}
	_, out, _ := send(h, "POST", "/v1/batch",
		`{"requests":[{"limit":"fixed-window 1/1h","key":"k","id":"c"},{"limit":"fixed-window 1/1h","key":"k","id":"c"}]}`)
	second := out["answers"].([]any)[1].(map[string]any)
	if second["allowed"] != true || second["replayed"] != true {
		t.Errorf("the second request with the id: %v, want it replayed", out)
	}
}

func TestAcquireRenewAndRelease(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	_, out, _ := send(h, "POST", "/v1/acquire", `{"limit":"concurrency 1 ttl 30s","key":"k"}`)
	if out["allowed"] != true || out["ttl_ms"] != 30000.0 {
		t.Fatalf("acquire: %v, want allowed for 30000 ms", out)
	}
	leases, _ := json.Marshal(map[string]any{"held": out["held"]})
	for i, step := range []struct {
		path, body, field string
		want              any
	}{
		{"/v1/acquire", `{"limit":"concurrency 1 ttl 30s","key":"k"}`, "allowed", false},
		{"/v1/renew", string(leases), "lost", false},
		{"/v1/release", string(leases), "lost", false},
		{"/v1/release", string(leases), "lost", true},
		{"/v1/renew", string(leases), "lost", true},
		{"/v1/acquire", `{"charges":[{"limit":"concurrency 1 ttl 30s","key":"k"},{"limit":"fixed-window 1/1h","key":"k"}]}`, "allowed", true},
	} {
		if code, out, _ := send(h, "POST", step.path, step.body); code != 200 || out[step.field] != step.want {
			t.Errorf("step %d: status %d, %v, want %s %v", i, code, out, step.field, step.want)
		}
	}
}

func TestLimitsHealthAndDescription(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "limits:\n  login: {limit: token-bucket 10/s, description: tries}\n")
	_, out, _ := send(h, "GET", "/v1/limits", "")
	l := out["limits"].([]any)[0].(map[string]any)
	if l["name"] != "login" || l["limit"] != "token-bucket 10/s burst 10" || l["description"] != "tries" ||
		l["bound"] != "token-bucket 10/s burst 10 lets 10 pass each second; at worst 20 in one second" {
		t.Errorf("limits: %v, want login with its bound", l)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		if code, _, _ := send(h, "GET", path, ""); code != 200 {
			t.Errorf("%s: status %d, want 200", path, code)
		}
	}
	// The description must have exactly the paths that are served.
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	text, _ := io.ReadAll(w.Body)
	var doc struct {
		Paths map[string]map[string]any
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var described []string
	for path, methods := range doc.Paths {
		for method := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
		}
	}
	served := rest.Patterns()
	for _, r := range whatif.New(nil).Routes() {
		served = append(served, r.Pattern)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described: %q\nserved: %q", described, served)
	}
}

// TestCellsShowWhatIsInUseNow checks that /v1/cells drains the levels of keys up to now.
func TestCellsShowWhatIsInUseNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t,
			"allow_notations: true\nlimits:\n  fast: token-bucket 1000/s\n  slow: token-bucket 5/1d\n")
		for _, limit := range []string{"fast", "slow", "fixed-window 1000/1h from-first"} {
			if code, out, _ := send(h, "POST", "/v1/take", `{"limit":"`+limit+`","key":"k","cost":2}`); code != 200 {
				t.Fatal(out)
			}
		}
		time.Sleep(50 * time.Millisecond)
		_, out, _ := send(h, "GET", "/v1/cells", "")
		got := map[string][3]any{}
		for _, element := range out["cells"].([]any) {
			cell := element.(map[string]any)
			got[cell["limit"].(string)] = [3]any{cell["used"], cell["capacity"], cell["remaining"]}
		}
		used, _ := got["slow"][0].(float64)
		got["slow"] = [3]any{used > 1.999 && used <= 2, got["slow"][1], got["slow"][2]}
		want := map[string][3]any{
			"fast": {0.0, 1000.0, 1000.0}, "slow": {true, 5.0, 3.0},
			"fixed-window 1000/1h from-first": {2.0, 1000.0, 998.0},
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// silentStore answers when the context or the test ends, with store.ErrUnknownOutcome.
type silentStore struct {
	*memory.Store
	testDone <-chan struct{}
}

func (s silentStore) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	select {
	case <-ctx.Done():
	case <-s.testDone:
	}
	return fmt.Errorf("silent: %w: %w", store.ErrUnknownOutcome, context.Cause(ctx))
}
