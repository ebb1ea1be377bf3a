package rest

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// TestAProxyShowsItsOwnToken checks that /v1/auth ignores the header Authorization, which is the end user's.
func TestAProxyShowsItsOwnToken(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	token := tokens["take"]
	for headers, want := range map[string]int{
		"X-Forwarded-Uri: /":                                                 401,
		"X-Forwarded-Uri: /|Headgate-Token: " + token:                        204,
		"Headgate-Token: " + token:                                           204,
		"Headgate-Token: " + token + "|Authorization: Basic eDp5":            204,
		"Headgate-Token: " + token + "|Authorization: Bearer hgt_x":          204,
		"Headgate-Token: " + tokens["read"]:                                  403,
		"Headgate-Token: hgt_x":                                              401,
		"Headgate-Token: hgt_x|Authorization: Bearer " + token:               401,
		"X-Forwarded-Uri: /|Authorization: Bearer " + token:                  401,
		"X-Forwarded-Uri: /|Headgate-Token: |Authorization: Bearer " + token: 401,
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodHead} {
			w := send(h, method, "/v1/auth?limit=api&key=k", "", strings.Split(headers, "|")...)
			if w.Code != want {
				t.Errorf("%s %.60q: status %d, want %d: %s", method, headers, w.Code, want, w.Body)
			}
		}
	}
	limitedToken := "Headgate-Token: " + tokens["some"]
	for query, want := range map[string]int{
		"limit=api&key=k": 204, "limit=other&key=k": 403, "limit=none&key=k": 403, "limit=api&key=k&limit=other&key=k": 403,
	} {
		if w := send(h, http.MethodGet, "/v1/auth?"+query, "", limitedToken); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
	w := send(h, http.MethodPost, "/v1/inspect", `{"limit":"api","key":"k"}`, "Headgate-Token: "+tokens["read"])
	if !strings.Contains(w.Body.String(), `"used":13`) { // 4 admitted sets of headers by 3 methods, and 1 of 4 queries
		t.Errorf("got %s, want 13 charges: the refused requests charge nothing", w.Body)
	}
}
