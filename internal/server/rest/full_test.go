package rest_test

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

// TestAFullLimitIsReported fills a limit, and checks all answers: a request for a new key is 503, and keys that
// exist are decided.
func TestAFullLimitIsReported(t *testing.T) {
	t.Parallel()
	still := func() int64 { return 1795600000_000000 } // so no window ends
	s := memory.New(&memory.Config{MaxKeys: 2, Names: true, Clock: still})
	h := rest.New(service.New(headgate.New(front.New(s, &front.Config{SweepEvery: -1}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	const limit = "fixed-window 2/1h away allow" // which an absent store would admit
	post := func(path, body string) (int, map[string]any) {
		code, out, _ := ask(h, "POST", path, strings.ReplaceAll(body, `"api"`, strconv.Quote(limit)))
		return code, out
	}
	for i, want := range []struct {
		key     string
		code    int
		allowed any
	}{{"a", 200, true}, {"b", 200, true}, {"c", 503, nil}, {"a", 200, true}, {"a", 200, false}, {"d", 503, nil}} {
		code, out := post("/v1/take", fmt.Sprintf(`{"limit":"api","key":%q}`, want.key))
		if code != want.code || out["allowed"] != want.allowed || code == 503 && out["type"] != api.Full {
			t.Errorf("take %d: %d, %v", i, code, out)
		}
	}
	for path, body := range map[string]string{
		"/v1/take":    `{"limit":"api","key":"f","id":"x"}`,
		"/v1/reserve": `{"limit":"api","key":"f","id":"x"}`,
		"/v1/block":   `{"limit":"api","key":"f","for":"1h"}`,
	} {
		if code, out := post(path, body); code != 503 || out["type"] != api.Full {
			t.Errorf("%s: %d, %v", path, code, out)
		}
	}
	if _, out := post("/v1/batch", `{"requests":[{"limit":"api","key":"f"},{"limit":"api","key":"a","check":true}]}`); true {
		list := out["answers"].([]any)
		problem, _ := list[0].(map[string]any)["problem"].(map[string]any)
		if problem["type"] != api.Full || list[1].(map[string]any)["allowed"] != false {
			t.Errorf("batch: %v", out)
		}
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		code, out, _ := ask(h, "GET", path, "")
		limits, _ := out["limits"].([]any)
		if code != 200 || out["status"] != "ok" || len(limits) != 1 {
			t.Fatalf("%s: %d, %v", path, code, out)
		}
		if l := limits[0].(map[string]any); l["limit"] != limit || l["keys"] != 2.0 || l["max"] != 2.0 {
			t.Errorf("%s: %v", path, l)
		}
	}
	if code, out := post("/v1/reset", `{"limit":"api","key":"b"}`); code != 200 || out["existed"] != true {
		t.Errorf("a reset: %d, %v", code, out)
	}
	if code, out := post("/v1/take", `{"limit":"api","key":"e"}`); code != 200 || out["allowed"] != true {
		t.Errorf("with room again: %d, %v", code, out)
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
