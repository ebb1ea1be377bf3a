package rest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
)

// TestInspectReturnsAsManyAttemptsAsRequested inspects a key with 25 admitted and 5 refused attempts, newest first.
func TestInspectReturnsAsManyAttemptsAsRequested(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "limits: {audit: sliding-log 25/1h history 1d, plain: token-bucket 5/1h}")
	for range 30 {
		send(h, "POST", "/v1/take", `{"limit":"audit","key":"k"}`)
	}
	send(h, "POST", "/v1/take", `{"limit":"plain","key":"k"}`)
	inspect := func(limit, field string) api.Status {
		w := httptest.NewRecorder()
		body := fmt.Sprintf(`{"limit":%q,"key":"k"%s}`, limit, field)
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/inspect", strings.NewReader(body)))
		var out api.Status
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatal(w.Body, err)
		}
		return out
	}
	full := inspect("audit", `,"attempts":10000`).History
	for field, want := range map[string]int{
		"": 20, `,"attempts":0`: 20, `,"attempts":1`: 1, `,"attempts":21`: 21, `,"attempts":30`: 30,
		`,"attempts":10000`: 30,
	} {
		list := inspect("audit", field).History
		if len(list) != want || len(full) != 30 {
			t.Errorf("%q: got %d attempts, want %d of %d", field, len(list), want, len(full))
			continue
		}
		for i, a := range list {
			if a != full[i] || a.Allowed != (i >= 5) {
				t.Errorf("%s: attempt %d is %+v, want %+v", field, i, a, full[i])
			}
		}
	}
	if list := inspect("plain", `,"attempts":10`).History; list != nil {
		t.Errorf("attempts of a bucket: %+v, want none", list)
	}
}
