package rest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

// TestObserveBlocksTheKey reports responses as providers send them. It checks that a key is refused for the time that
// the response asks for, at most an hour, and not at all if it asks for none. The clock stands still, since some ask
// for less than a second.
func TestObserveBlocksTheKey(t *testing.T) { synctest.Test(t, testObserveBlocksTheKey) }

func testObserveBlocksTheKey(t *testing.T) {
	h, _ := newHandler(t, "")
	post := func(path, body string, to any) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		if err := json.Unmarshal(w.Body.Bytes(), to); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%s %s: status %d, %s, %v", path, body, w.Code, w.Body, err)
		}
	}
	const date = `"Date":"Wed, 25 Nov 2026 10:00:00 GMT"`
	for provider, tt := range map[string]struct {
		status, headers string
		wantMS          int64
		field           string
	}{
		"any":              {"429", `"retry-after":"20"`, 20_000, "Retry-After"},
		"any, by a date":   {"503", date + `,"Retry-After":"Wed, 25 Nov 2026 10:01:00 GMT"`, 60_000, "Retry-After"},
		"openai":           {"429", `"x-ratelimit-remaining-requests":"0","x-ratelimit-reset-requests":"6m0s"`, 360_000, "X-Ratelimit-Reset-Requests"},
		"openai, tokens":   {"200", `"x-ratelimit-remaining-tokens":"0","x-ratelimit-reset-tokens":"1.5s"`, 1500, "X-Ratelimit-Reset-Tokens"},
		"openai, some":     {"200", `"x-ratelimit-remaining-requests":"59","x-ratelimit-reset-requests":"1s"`, 0, ""},
		"anthropic":        {"429", date + `,"retry-after":"7","anthropic-ratelimit-requests-reset":"2026-11-25T10:05:00Z"`, 7000, "Retry-After"},
		"anthropic, input": {"429", date + `,"anthropic-ratelimit-input-tokens-remaining":"0","anthropic-ratelimit-input-tokens-reset":"2026-11-25T10:00:30Z"`, 30_000, "Anthropic-Ratelimit-Input-Tokens-Reset"},
		"github":           {"403", date + `,"x-ratelimit-remaining":"0","x-ratelimit-reset":"1795600890"`, 90_000, "X-Ratelimit-Reset"},
		"azure":            {"429", `"retry-after-ms":"6500"`, 6500, "Retry-After-Ms"},
		"cosmos":           {"429", `"x-ms-retry-after-ms":"900"`, 900, "X-Ms-Retry-After-Ms"},
		"stripe":           {"429", `"stripe-should-retry":"true"`, 0, ""},
		"absurd":           {"429", `"retry-after":"99999999"`, 3_600_000, "Retry-After"},
		"nonsense":         {"429", `"retry-after":"soon"`, 0, ""},
		"accepted":         {"202", `"retry-after":"20"`, 0, ""},
	} {
		var got struct {
			BlockedForMS int64 `json:"blocked_for_ms"`
			Field        string
		}
		key := `"limit":"fixed-window 9/1h","key":"` + provider + `"`
		post("/v1/observe", `{`+key+`,"status":`+tt.status+`,"headers":{`+tt.headers+`}}`, &got)
		if got.BlockedForMS != tt.wantMS || got.Field != tt.field {
			t.Errorf("%s: blocked for %d ms by %q; want %+v", provider, got.BlockedForMS, got.Field, tt)
		}
		var d struct {
			Allowed      bool
			RetryAfterMS int64 `json:"retry_after_ms"`
		}
		post("/v1/take", `{`+key+`}`, &d)
		if d.Allowed != (tt.wantMS == 0) || d.RetryAfterMS != tt.wantMS {
			t.Errorf("%s: a take after that: %+v, want it refused for %d ms", provider, d, tt.wantMS)
		}
	}
	// A later response with a shorter time does not shorten the block.
	post("/v1/observe", `{"limit":"fixed-window 9/1h","key":"any","status":429,"headers":{"retry-after":"1"}}`, new(struct{}))
	var d struct {
		RetryAfterMS int64 `json:"retry_after_ms"`
	}
	if post("/v1/take", `{"limit":"fixed-window 9/1h","key":"any"}`, &d); d.RetryAfterMS != 20_000 {
		t.Errorf("after a shorter pause: %+v", d)
	}
}
