package rest

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// TestAProxyShowsItsOwnToken: Authorization is that of its end user, whatever it is.
func TestAProxyShowsItsOwnToken(t *testing.T) {
	t.Parallel()
	s, c, tokens := guarded(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	good := tokens["take"]
	for headers, want := range map[string]int{
		"X-Forwarded-Uri: /":                                                401,
		"X-Forwarded-Uri: /|Headgate-Token: " + good:                        204,
		"Headgate-Token: " + good:                                           204,
		"Headgate-Token: " + good + "|Authorization: Basic eDp5":            204,
		"Headgate-Token: " + good + "|Authorization: Bearer hgt_x":          204,
		"Headgate-Token: " + tokens["read"]:                                 403,
		"Headgate-Token: hgt_x":                                             401,
		"Headgate-Token: hgt_x|Authorization: Bearer " + good:               401,
		"X-Forwarded-Uri: /|Authorization: Bearer " + good:                  401,
		"X-Forwarded-Uri: /|Headgate-Token: |Authorization: Bearer " + good: 401,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
			w := ask(h, method, "/v1/auth?limit=api&key=k", "", strings.Split(headers, "|")...)
			if w.Code != want {
				t.Errorf("%s %.60q: status %d, want %d: %s", method, headers, w.Code, want, w.Body)
			}
		}
	}
	some := "Headgate-Token: " + tokens["some"]
	for query, want := range map[string]int{
		"limit=api&key=k": 204, "limit=other&key=k": 403, "limit=none&key=k": 403, "limit=api&key=k&limit=other&key=k": 403,
	} {
		if w := ask(h, http.MethodGet, "/v1/auth?"+query, "", some); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
	w := ask(h, http.MethodPost, "/v1/inspect", `{"limit":"api","key":"k"}`, "Headgate-Token: "+tokens["read"])
	if !strings.Contains(w.Body.String(), `"used":13`) { // four headers by three methods, and one
		t.Errorf("what was refused was charged: %s", w.Body)
	}
}
