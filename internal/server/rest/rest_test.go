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

func handler(t *testing.T, yamlText string) (http.Handler, *memory.Store) {
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

func ask(h http.Handler, method, path, body string) (int, map[string]any, http.Header) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var out map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &out)
	return w.Code, out, w.Header()
}

func TestADecisionIsAlwaysStatus200(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	for i, want := range []struct {
		body    string
		allowed bool
		retry   any
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
		code, out, head := ask(h, "POST", "/v1/take", want.body)
		if code != 200 || out["allowed"] != want.allowed || head.Get("Content-Type") != "application/json" {
			t.Errorf("%d: status %d, %v", i, code, out)
		}
		if retry := out["retry_after_ms"]; want.retry == "some" && (retry == nil || retry == 0.0) ||
			want.retry != "some" && retry != want.retry {
			t.Errorf("%d: retry_after_ms %v, want %v", i, retry, want.retry)
		}
		for _, name := range []string{"limit", "remaining", "reset_after_ms", "at"} {
			if out[name] == nil {
				t.Errorf("%d: %s is missing: %v", i, name, out)
			}
		}
	}
	if code, out, _ := ask(h, "POST", "/v1/check", `{"limit":"token-bucket 5/1h","key":"c"}`); code != 200 ||
		out["remaining"] != 5.0 {
		t.Errorf("the refused request charged c: %d %v", code, out)
	}
}

func TestBatchAnswersInOrderAndFailsOneByOne(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	code, out, _ := ask(h, "POST", "/v1/batch", `{"requests":[
		{"limit":"token-bucket 1/1h","key":"a"}, {"limit":"token-bucket 1/1h","key":"a"},
		{"limit":"nope","key":"a"}, {"limit":"token-bucket 1/1h","key":"b","check":true}, {"limit":"token-bucket 1/1h","key":"b"},
		{"charges":[{"limit":"token-bucket 9/1h","key":"c"},{"limit":"token-bucket 1/1h","key":"d"}]}, {"charges":[{"key":"c"}],"key":"d"},
		{"limit":"token-bucket 1/1h"}, {}, {"limit":"token-bucket 1/1h","key":""}]}`)
	if code != 200 {
		t.Fatalf("status %d, %v", code, out)
	}
	if about := out["answers"].([]any)[5].(map[string]any)["key"]; about != "d" {
		t.Errorf("of several charges the decision is about %v, want d", about)
	}
	var got []any
	for _, a := range out["answers"].([]any) {
		m := a.(map[string]any)
		if p, ok := m["problem"].(map[string]any); ok {
			got = append(got, p["status"])
		} else {
			got = append(got, m["allowed"])
		}
	}
	if want := []any{true, false, 400.0, true, true, true, 400.0, 400.0, 400.0, true}; !equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAFillUpTakesWhatFits(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "allow_notations: true\nlimits:\n  month: fixed-window 10/1h from-first\n")
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
		code, out, _ := ask(h, "POST", "/v1/fill-up", step.body)
		if code != http.StatusOK {
			t.Fatalf("step %d: status %d, %v", i, code, out)
		}
		for name, want := range step.want {
			if out[name] != want {
				t.Errorf("step %d: %s is %v, want %v: %v", i, name, out[name], want, out)
			}
		}
		if retry, _ := out["retry_after_ms"].(float64); i == 2 && (retry <= 0 || retry > 3600_000) {
			t.Errorf("step %d: %v", i, out)
		}
	}
}

// TestUsageInJSON has every member of an answer once.
func TestUsageInJSON(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "limits:\n  login: fixed-window 1/1h from-first\n  api: token-bucket 5/1m\n")
	for range 2 {
		ask(h, "POST", "/v1/take", `{"limit":"login","key":"a b"}`)
	}
	code, out, head := ask(h, "GET", "/v1/usage?key=a+b", "")
	limits, _ := out["limits"].([]any)
	if code != 200 || len(limits) != 2 || out["key"] != "a b" || head.Get("Cache-Control") != "no-store" {
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
		t.Errorf("%v", login)
	}
	refusals, _ := out["refusals"].([]any)
	if len(refusals) != 1 {
		t.Fatalf("refusals: %v", out)
	}
	r := refusals[0].(map[string]any)
	if then, _ := r["retry_after_ms"].(float64); r["limit"] != "login" || r["cost"] != 1.0 || then < retry || r["at"] == nil {
		t.Errorf("refusal: %v", r)
	}
	if _, out, _ = ask(h, "GET", "/v1/usage?key=&limit=api&limit=api", ""); len(out["limits"].([]any)) != 2 ||
		len(out["refusals"].([]any)) != 0 {
		t.Errorf("an empty key, a limit twice: %v", out)
	}
}

func equal(a, b []any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestRequestsWithAnID(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
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
		code, out, _ := ask(h, "POST", step.path, step.body)
		if code != step.status {
			t.Errorf("step %d: status %d, %v", i, code, out)
		}
		for name, want := range step.want {
			if out[name] != want {
				t.Errorf("step %d: %s is %v, want %v", i, name, out[name], want)
			}
		}
	}
	_, out, _ := ask(h, "POST", "/v1/batch",
		`{"requests":[{"limit":"fixed-window 1/1h","key":"k","id":"c"},{"limit":"fixed-window 1/1h","key":"k","id":"c"}]}`)
	second := out["answers"].([]any)[1].(map[string]any)
	if second["allowed"] != true || second["replayed"] != true {
		t.Errorf("%v", out)
	}
}

func TestHolding(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	_, out, _ := ask(h, "POST", "/v1/acquire", `{"limit":"concurrency 1 ttl 30s","key":"k"}`)
	if out["allowed"] != true || out["ttl_ms"] != 30000.0 {
		t.Fatalf("%v", out)
	}
	held, _ := json.Marshal(map[string]any{"held": out["held"]})
	for i, step := range []struct {
		path, body, field string
		want              any
	}{
		{"/v1/acquire", `{"limit":"concurrency 1 ttl 30s","key":"k"}`, "allowed", false},
		{"/v1/renew", string(held), "lost", false},
		{"/v1/release", string(held), "lost", false},
		{"/v1/release", string(held), "lost", true},
		{"/v1/renew", string(held), "lost", true},
		{"/v1/acquire", `{"charges":[{"limit":"concurrency 1 ttl 30s","key":"k"},{"limit":"fixed-window 1/1h","key":"k"}]}`, "allowed", true},
	} {
		if code, out, _ := ask(h, "POST", step.path, step.body); code != 200 || out[step.field] != step.want {
			t.Errorf("step %d: status %d, %v", i, code, out)
		}
	}
}

func TestLimitsHealthAndDescription(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "limits:\n  login: {limit: token-bucket 10/s, description: tries}\n")
	_, out, _ := ask(h, "GET", "/v1/limits", "")
	l := out["limits"].([]any)[0].(map[string]any)
	if l["name"] != "login" || l["limit"] != "token-bucket 10/s burst 10" || l["description"] != "tries" ||
		l["bound"] != "token-bucket 10/s burst 10 lets 10 pass each second; at worst 20 in one second" {
		t.Errorf("limits: %v", l)
	}
	for _, path := range []string{"/healthz", "/readyz", "/livez"} {
		if code, _, _ := ask(h, "GET", path, ""); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
	// Every path that is served is described, and the other way round.
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

// TestCellsShowWhatIsInUseNow: also of a key that nobody has asked about since.
func TestCellsShowWhatIsInUseNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := handler(t, "allow_notations: true\nlimits:\n  fast: token-bucket 1000/s\n  slow: token-bucket 5/1d\n")
		for _, limit := range []string{"fast", "slow", "fixed-window 1000/1h from-first"} {
			if code, out, _ := ask(h, "POST", "/v1/take", `{"limit":"`+limit+`","key":"k","cost":2}`); code != 200 {
				t.Fatal(out)
			}
		}
		time.Sleep(50 * time.Millisecond)
		_, out, _ := ask(h, "GET", "/v1/cells", "")
		got := map[string][3]any{}
		for _, c := range out["cells"].([]any) {
			c := c.(map[string]any)
			got[c["limit"].(string)] = [3]any{c["used"], c["capacity"], c["remaining"]}
		}
		slow, _ := got["slow"][0].(float64)
		got["slow"] = [3]any{slow > 1.999 && slow <= 2, got["slow"][1], got["slow"][2]}
		want := map[string][3]any{
			"fast": {0.0, 1000.0, 1000.0}, "slow": {true, 5.0, 3.0},
			"fixed-window 1000/1h from-first": {2.0, 1000.0, 998.0},
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	})
}

// silent answers nobody until the context ends, when nobody knows what it has done, or the test is over.
type silent struct {
	*memory.Store
	over <-chan struct{}
}

func (s silent) Apply(ctx context.Context, _ []law.Op, _ []law.Outcome) error {
	select {
	case <-ctx.Done():
	case <-s.over:
	}
	return fmt.Errorf("silent: %w: %w", store.ErrUnknownOutcome, context.Cause(ctx))
}
