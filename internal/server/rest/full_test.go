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

// TestALimitWithAllItsKeysIsReported checks a limit with as many keys as it may have. A take of a new key is answered
// 503, also with an id, and so is a reserve or a block; in a batch only its request fails. Keys that exist are decided.
// /readyz and /healthz answer 200 and list the limit. A reset of one key makes room for another.
func TestALimitWithAllItsKeysIsReported(t *testing.T) {
	t.Parallel()
	fixedClock := func() int64 { return 1795600000_000000 } // so that no window ends
	s := memory.New(&memory.Config{MaxKeys: 2, Names: true, Clock: fixedClock})
	h := rest.New(service.New(headgate.New(front.New(s, &front.Config{SweepEvery: -1}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	const limit = "fixed-window 2/1h away allow"                      // without room a store is not away
	postAboutLimit := func(path, body string) (int, map[string]any) { // "api" in the body stands for the limit
		code, out, _ := send(h, "POST", path, strings.ReplaceAll(body, `"api"`, strconv.Quote(limit)))
		return code, out
	}
	for i, tt := range []struct {
		key     string
		code    int
		allowed any
	}{{"a", 200, true}, {"b", 200, true}, {"c", 503, nil}, {"a", 200, true}, {"a", 200, false}, {"d", 503, nil}} {
		code, out := postAboutLimit("/v1/take", fmt.Sprintf(`{"limit":"api","key":%q}`, tt.key))
		if code != tt.code || out["allowed"] != tt.allowed || code == 503 && out["type"] != api.Full {
			t.Errorf("take %d: status %d, %v, want %d, allowed %v", i, code, out, tt.code, tt.allowed)
		}
	}
	for path, body := range map[string]string{
		"/v1/take":    `{"limit":"api","key":"f","id":"x"}`,
		"/v1/reserve": `{"limit":"api","key":"f","id":"x"}`,
		"/v1/block":   `{"limit":"api","key":"f","for":"1h"}`,
	} {
		if code, out := postAboutLimit(path, body); code != 503 || out["type"] != api.Full {
			t.Errorf("%s: status %d, %v, want 503 with the type %s", path, code, out, api.Full)
		}
	}
	_, batch := postAboutLimit("/v1/batch",
		`{"requests":[{"limit":"api","key":"f"},{"limit":"api","key":"a","check":true}]}`)
	answers := batch["answers"].([]any)
	problem, _ := answers[0].(map[string]any)["problem"].(map[string]any)
	if problem["type"] != api.Full || answers[1].(map[string]any)["allowed"] != false {
		t.Errorf("batch: %v, want a problem and a refusal", batch)
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		code, out, _ := send(h, "GET", path, "")
		limits, _ := out["limits"].([]any)
		if code != 200 || out["status"] != "ok" || len(limits) != 1 {
			t.Fatalf("%s: %d, %v", path, code, out)
		}
		if got := limits[0].(map[string]any); got["limit"] != limit || got["keys"] != 2.0 || got["max"] != 2.0 {
			t.Errorf("%s: %v, want 2 keys of 2", path, got)
		}
	}
	if code, out := postAboutLimit("/v1/reset", `{"limit":"api","key":"b"}`); code != 200 || out["existed"] != true {
		t.Errorf("reset: status %d, %v, want 200 and existed", code, out)
	}
	if code, out := postAboutLimit("/v1/take", `{"limit":"api","key":"e"}`); code != 200 || out["allowed"] != true {
		t.Errorf("with room for a key: status %d, %v, want 200 and allowed", code, out)
	}
}

// TestAStoreThatDoesNotAnswerIsNotReady checks that /readyz is answered 503 within 5 seconds, as api.Unavailable.
func TestAStoreThatDoesNotAnswerIsNotReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// The struct hides memory's optional interfaces, which would answer.
		inner := struct{ store.Store }{silentStore{memory.New(nil), t.Context().Done()}}
		s := headgate.New(inner, &headgate.Config{Timeout: -1})
		h := rest.New(service.New(s, &config.Config{}, nil), slog.New(slog.DiscardHandler), nil)
		begin := time.Now()
		code, out, header := send(h, "GET", "/readyz", "")
		if code != 503 || out["type"] != api.Unavailable || header.Get("Retry-After") == "" ||
			time.Since(begin) > 5*time.Second {
			t.Errorf("status %d, %v after %s, want 503 within 5 s", code, out, time.Since(begin))
		}
	})
}
