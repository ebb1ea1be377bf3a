package rest_test

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/api"
	"github.com/headgate/headgate/server/config"
	"github.com/headgate/headgate/server/rest"
	"github.com/headgate/headgate/server/service"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestAFullLimitIsTold fills a limit, and looks at what is said of it everywhere.
func TestAFullLimitIsTold(t *testing.T) {
	t.Parallel()
	still := func() int64 { return 1795600000_000000 } // so no window ends
	s := memory.New(&memory.Config{MaxKeys: 2, Names: true, Clock: still})
	h := rest.New(service.New(headgate.New(s, nil), &config.Config{}, nil), slog.New(slog.DiscardHandler), nil)
	post := func(path, body string) (int, map[string]any) {
		code, out, _ := ask(h, "POST", path, body)
		return code, out
	}
	for i, want := range []struct {
		key     string
		allowed bool
		shared  any
	}{{"a", true, nil}, {"b", true, nil}, {"c", true, true}, {"d", true, true}, {"e", false, true}, {"a", true, nil}} {
		code, out := post("/v1/take", fmt.Sprintf(`{"limit":"fixed-window 2/1h","key":%q}`, want.key))
		if code != 200 || out["allowed"] != want.allowed || out["shared"] != want.shared {
			t.Errorf("take %d: %d, %v", i, code, out)
		}
	}
	for path, body := range map[string]string{
		"/v1/take":    `{"limit":"fixed-window 2/1h","key":"f","id":"x"}`,
		"/v1/reserve": `{"limit":"fixed-window 2/1h","key":"f","id":"x"}`,
		"/v1/block":   `{"limit":"fixed-window 2/1h","key":"f","for":"1h"}`,
	} {
		code, out := post(path, body)
		if code != 503 || out["type"] != api.Full {
			t.Errorf("%s: %d, %v", path, code, out)
		}
	}
	if _, out := post("/v1/batch", `{"requests":[{"limit":"fixed-window 2/1h","key":"f","id":"x"},{"limit":"fixed-window 2/1h","key":"a","check":true}]}`); true {
		list := out["answers"].([]any)
		problem, _ := list[0].(map[string]any)["problem"].(map[string]any)
		if problem["type"] != api.Full || list[1].(map[string]any)["allowed"] != false {
			t.Errorf("batch: %v", out)
		}
	}
	_, out := post("/v1/inspect", `{"limit":"fixed-window 2/1h","key":"f"}`)
	if out["shared"] != true || out["exists"] != false || out["used"] != 2.0 || out["capacity"] != 2.0 ||
		out["remaining"] != 0.0 {
		t.Errorf("inspect: %v", out)
	}
	_, out, _ = ask(h, "GET", "/v1/cells", "")
	cells := out["cells"].([]any)
	if len(cells) != 3 {
		t.Fatalf("cells: %v", out)
	}
	last := cells[2].(map[string]any)
	if last["key"] != "headgate:shared:1" || last["shared"] != true || last["used"] != 2.0 ||
		cells[0].(map[string]any)["shared"] != nil {
		t.Errorf("cells: %v", out)
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		code, out, _ := ask(h, "GET", path, "")
		limits, _ := out["limits"].([]any)
		if code != 200 || out["status"] != "ok" || len(limits) != 1 {
			t.Fatalf("%s: %d, %v", path, code, out)
		}
		l := limits[0].(map[string]any)
		if l["limit"] != "fixed-window 2/1h" || l["keys"] != 2.0 || l["max"] != 2.0 || l["sharing"] != true ||
			l["since"] == nil || l["shared"].(float64) < 3 {
			t.Errorf("%s: %v", path, l)
		}
	}
	// Its key is good for operators, and for nobody else.
	if code, out := post("/v1/take", `{"limit":"fixed-window 2/1h","key":"headgate:shared:1"}`); code != 400 ||
		out["field"] != "key" {
		t.Errorf("a take of the shared cell: %d, %v", code, out)
	}
	if code, out := post("/v1/reset", `{"limit":"fixed-window 2/1h","key":"headgate:shared:1"}`); code != 200 ||
		out["existed"] != true {
		t.Errorf("a reset of the shared cell: %d, %v", code, out)
	}
	if _, out := post("/v1/take", `{"limit":"fixed-window 2/1h","key":"e"}`); out["allowed"] != true ||
		out["shared"] != true {
		t.Errorf("after the reset: %v", out)
	}
}

// TestAStoreThatDoesNotAnswerIsNotReady: a probe is nobody's charge, so there is nothing
// that is not known.
func TestAStoreThatDoesNotAnswerIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := struct{ store.Store }{silent{memory.New(nil), t.Context().Done()}}
		s := headgate.New(inner, &headgate.Config{Timeout: -1})
		h := rest.New(service.New(s, &config.Config{}, nil), slog.New(slog.DiscardHandler), nil)
		begin := time.Now()
		code, out, head := ask(h, "GET", "/readyz", "")
		if code != 503 || out["type"] != api.Unavailable || head.Get("Retry-After") == "" || time.Since(begin) > 5*time.Second {
			t.Errorf("status %d, %v after %s", code, out, time.Since(begin))
		}
	})
}
