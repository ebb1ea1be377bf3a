package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/forwardauth"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// newGuardedService returns a service, and a configuration that knows four callers, with their tokens by name: take,
// read and admin have the role of their name, and some is an admin of the limit api alone.
func newGuardedService(t *testing.T) (s *service.Service, c *Config, tokens map[string]string) {
	t.Helper()
	file, tokens := authtest.Open(t, auth.Entry{Name: "take", Role: "take"}, auth.Entry{Name: "read", Role: "read"},
		auth.Entry{Name: "admin", Role: "admin"}, auth.Entry{Name: "some", Role: "admin", Limits: []string{"api"}})
	limits, err := config.Parse("test.yaml", []byte("allow_notations: true\nlimits:\n  api: sliding-log 1000000/1h\n"+
		"  other: token-bucket 1000000/1h\n  jobs: concurrency 1000 ttl 1h\n"))
	if err != nil {
		t.Fatal(err)
	}
	l := headgate.New(memory.New(&memory.Config{Names: true}), &headgate.Config{Names: limits})
	return service.New(l, limits, nil), &Config{Tokens: file}, tokens
}

// send sends a request with headers such as "Headgate-Token: x".
func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestEveryRouteNeedsItsRole(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	srv := newServer(s, slog.New(slog.DiscardHandler), c)
	h := handler(srv.routes())
	roleOf := map[string]auth.Role{}
	for _, r := range srv.routes() {
		roleOf[r.pattern] = r.role
		method, path, ok := strings.Cut(r.pattern, " ")
		if !ok { // whatever the method
			method, path = http.MethodGet, r.pattern
		}
		for name, token := range tokens {
			w := send(h, method, path, "{}", "Headgate-Token: "+token)
			mayCall := r.role == auth.Anyone || name == "admin" || name == "some" || name == r.role.String()
			forbidden := w.Code == http.StatusForbidden
			// The caller some is refused where all limits are needed.
			if forbidden == mayCall && !strings.Contains(w.Body.String(), "all limits") {
				t.Errorf("%s by %s: status %d: %s", r.pattern, name, w.Code, w.Body)
			}
		}
		w := send(h, method, path, "{}")
		if refused := w.Code == http.StatusUnauthorized; refused == (r.role == auth.Anyone) ||
			refused && (w.Header().Get("WWW-Authenticate") == "") != (path == forwardauth.Path) {
			t.Errorf("%s without a token: status %d: %s", r.pattern, w.Code, w.Body)
		}
	}
	for pattern, role := range map[string]auth.Role{
		"POST /v1/take": auth.RoleTake, "POST /v1/settle": auth.RoleTake, "GET /v1/cells": auth.RoleRead,
		"POST /v1/observe": auth.RoleTake,
		"POST /v1/reset":   auth.RoleAdmin, "POST /v1/block": auth.RoleAdmin, "GET /livez": auth.Anyone,
	} {
		if got, ok := roleOf[pattern]; !ok || got != role {
			t.Errorf("%s needs the role %s, want %s", pattern, got, role)
		}
	}
}

func TestHowATokenIsShown(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	const body = `{"limit":"api","key":"k"}`
	token := tokens["take"]
	for headers, want := range map[string]int{
		"":                                          401,
		"Headgate-Token: " + token:                  200,
		"Authorization: Bearer " + token:            200,
		"Authorization: bearer  " + token:           200,
		"Authorization: Basic " + token:             401,
		"Authorization: " + token:                   401,
		"Authorization: Bearer":                     401,
		"Headgate-Token: ":                          401,
		"Headgate-Token: " + token + "x":            401,
		"Headgate-Token: hgt_x":                     401,
		"Authorization: Bearer " + auth.Hash(token): 401,
		// the proxy's token takes precedence over the header of its end user
		"Headgate-Token: " + token + "|Authorization: Bearer other": 200,
		"Headgate-Token: other|Authorization: Bearer " + token:      401,
	} {
		var list []string
		if headers != "" {
			list = strings.Split(headers, "|")
		}
		w := send(h, "POST", "/v1/take", body, list...)
		if w.Code != want {
			t.Errorf("%.30q: status %d, want %d: %s", headers, w.Code, want, w.Body)
		}
		if strings.Contains(w.Body.String(), token) {
			t.Errorf("%.30q: the answer holds the token", headers)
		}
	}
	if w := send(h, "POST", "/v1/inspect", body, "Headgate-Token: "+tokens["read"]); !strings.Contains(w.Body.String(),
		`"used":4`) {
		t.Errorf("got %s, want 4 charges: those of the 200s", w.Body)
	}
}

func TestACallerTouchesItsLimitsOnly(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	limited := "Headgate-Token: " + tokens["some"]
	for _, tt := range []struct {
		path, body string
		status     int
	}{
		{"/v1/take", `{"limit":"api","key":"k"}`, 200},
		{"/v1/take", `{"limit":"other","key":"k"}`, 403},
		{"/v1/take", `{"limit":"none","key":"k"}`, 403}, // it does not learn which limits there are
		{"/v1/take", `{"limit":"token-bucket 5/1m","key":"k"}`, 403},
		{"/v1/take", `{"limit":"nonsense 5/1m","key":"k"}`, 403},
		{"/v1/take", `{"charges":[{"limit":"api","key":"k"},{"limit":"other","key":"k"}]}`, 403},
		{"/v1/check", `{"limit":"other","key":"k"}`, 403},
		{"/v1/reserve", `{"limit":"other","key":"k"}`, 403},
		{"/v1/settle", `{"id":"i","limit":"other","key":"k","cost":1}`, 403},
		{"/v1/cancel", `{"id":"i","limit":"other","key":"k"}`, 403},
		{"/v1/extend", `{"id":"i","limit":"other","key":"k","cost":2}`, 403},
		{"/v1/fill-up", `{"limit":"other","key":"k"}`, 403},
		{"/v1/acquire", `{"limit":"jobs","key":"k"}`, 403},
		{"/v1/renew", `{"held":[{"limit":"jobs","key":"k","number":1}]}`, 403},
		{"/v1/release", `{"held":[{"limit":"jobs","key":"k","number":1}]}`, 403},
		{"/v1/inspect", `{"limit":"other","key":"k"}`, 403},
		{"/v1/reset", `{"limit":"other","key":"k"}`, 403},
		{"/v1/block", `{"limit":"other","key":"k","for":"1h"}`, 403},
		{"/v1/block", `{"limit":"api","key":"b","for":"1h"}`, 200},
	} {
		if w := send(h, "POST", tt.path, tt.body, limited); w.Code != tt.status {
			t.Errorf("%s %s: status %d, want %d: %s", tt.path, tt.body, w.Code, tt.status, w.Body)
		}
	}
	for path, want := range map[string]string{
		"/v1/cells": "403", "/v1/cells?limit=other": "403", "/v1/cells?limit=api": "200",
		"/v1/usage?key=k&limit=other": "403", "/v1/usage?key=k": "200", "/v1/limits": "200",
	} {
		w := send(h, "GET", path, "", limited)
		if got := w.Result().Status; !strings.HasPrefix(got, want) || strings.Contains(w.Body.String(), `"other"`) &&
			want == "200" {
			t.Errorf("%s: %s: %s", path, got, w.Body)
		}
	}
	w := send(h, "POST", "/v1/batch", `{"requests":[{"limit":"api","key":"k"},{"limit":"other","key":"k"}]}`, limited)
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, `"allowed":true`) ||
		!strings.Contains(body, `"status":403`) {
		t.Errorf("a batch: status %d, %s, want 200 with one admission and one 403", w.Code, body)
	}
	if w := send(h, "POST", "/v1/inspect", `{"limit":"other","key":"k"}`, "Headgate-Token: "+tokens["read"]); strings.
		Contains(w.Body.String(), `"exists":true`) {
		t.Errorf("got %s, want no cell: a forbidden request charges nothing", w.Body)
	}
}

// TestIDsBelongToACaller checks that no caller can replay or settle a charge of another caller.
func TestIDsBelongToACaller(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	take, admin := "Headgate-Token: "+tokens["take"], "Headgate-Token: "+tokens["admin"]
	const body = `{"id":"i","limit":"api","key":"k","cost":10}`
	for i, header := range []string{take, admin, take, admin} {
		w := send(h, "POST", "/v1/take", body, header)
		if replayed := strings.Contains(w.Body.String(), `"replayed":true`); w.Code != 200 || replayed != (i > 1) {
			t.Errorf("request %d: status %d, %s, want 200, replayed %v", i, w.Code, w.Body, i > 1)
		}
	}
	if w := send(h, "POST", "/v1/settle", `{"id":"take/i","limit":"api","key":"k","cost":1}`, admin); w.Code != 404 {
		t.Errorf("settled by another caller: status %d, want 404: %s", w.Code, w.Body)
	}
	if w := send(h, "POST", "/v1/settle", `{"id":"i","limit":"api","key":"k","cost":1}`, take); w.Code != 200 {
		t.Errorf("settled by the caller itself: status %d, want 200: %s", w.Code, w.Body)
	}
	w := send(h, "POST", "/v1/inspect", `{"limit":"api","key":"k"}`, admin)
	if !strings.Contains(w.Body.String(), `"used":11`) {
		t.Errorf("got %s, want 11 used: 10 by admin, and 10 by take, settled at 1", w.Body)
	}
}

func TestAdminActionsHaveAnAddressOfTheirOwn(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	var actions []service.AdminAction
	s.OnAdmin(func(a service.AdminAction) { actions = append(actions, a) })
	public, all, health := NewHandlers(s, slog.New(slog.DiscardHandler), c)
	admin := "Headgate-Token: " + tokens["admin"]
	const reset = `{"limit":"api","key":"k","reason":"asked for"}`
	for _, tt := range []struct {
		h            http.Handler
		method, path string
		status       int
	}{
		{public, "POST", "/v1/reset", 403},
		{public, "POST", "/v1/block", 403},
		{public, "POST", "/v1/check", 200},
		{public, "GET", "/livez", 200},
		{all, "POST", "/v1/reset", 200},
		{all, "POST", "/v1/check", 200},
		{health, "GET", "/livez", 200},
		{health, "GET", "/readyz", 200},
		{health, "POST", "/v1/check", 404},
		{health, "POST", "/v1/reset", 404},
		{health, "GET", "/v1/cells", 404},
	} {
		body := reset
		if tt.path == "/v1/check" {
			body = `{"limit":"api","key":"k"}`
		}
		if w := send(tt.h, tt.method, tt.path, body, admin); w.Code != tt.status {
			t.Errorf("%s: status %d, want %d: %s", tt.path, w.Code, tt.status, w.Body)
		}
	}
	for want, h := range map[string]http.Handler{`"actions":false`: public, `"actions":true`: all} {
		if w := send(h, "GET", "/v1/me", "", admin); !strings.Contains(w.Body.String(), want) {
			t.Errorf("/v1/me: got %s, want %s", w.Body, want)
		}
	}
	want := service.AdminAction{Verb: "reset", Limit: "api", Key: "k", Reason: "asked for", Caller: "admin"}
	if len(actions) != 1 || actions[0] != want {
		t.Errorf("got the actions %+v, want %+v", actions, want)
	}
}

func TestAUnixSocketNeedsNoToken(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	log := slog.New(slog.DiscardHandler)
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	httpServer := edge.NewServer(New(s, log, c), log, nil)
	go func() { _ = httpServer.Serve(l) }()
	defer httpServer.Close()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
	defer client.CloseIdleConnections()
	for token, want := range map[string]int{"": 200, tokens["take"]: 403, "wrong": 401} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/v1/reset",
			strings.NewReader(`{"limit":"api","key":"k"}`))
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set(auth.TokenHeader, token)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%.8q: status %d, want %d: %s", token, res.StatusCode, want, text)
		}
	}
}

// TestALeaseIsOfItsCaller checks that another caller can neither release nor renew a lease, by its number or by others.
func TestALeaseIsOfItsCaller(t *testing.T) {
	t.Parallel()
	s, c, tokens := newGuardedService(t)
	h := New(s, slog.New(slog.DiscardHandler), c)
	call := func(who, path, body string) string {
		return send(h, http.MethodPost, path, body, "Headgate-Token: "+tokens[who]).Body.String()
	}
	var a api.Acquired
	if err := json.Unmarshal([]byte(call("take", "/v1/acquire", `{"limit":"jobs","key":"k"}`)), &a); err != nil {
		t.Fatal(err)
	}
	leases := func(number int64) string {
		return fmt.Sprintf(`{"held":[{"limit":"jobs","key":"k","number":%d}]}`, number)
	}
	for number := range int64(20) {
		for _, path := range []string{"/v1/release", "/v1/renew"} {
			if text := call("admin", path, leases(number)); !strings.Contains(text, `"lost":true`) {
				t.Errorf("%s of lease %d by another caller: %s", path, number, text)
			}
		}
	}
	for who, lost := range map[string]string{"admin": `"lost":true`, "take": `"lost":false`} {
		for _, path := range []string{"/v1/renew", "/v1/release"} {
			if who == "admin" || path == "/v1/renew" {
				if text := call(who, path, leases(a.Held[0].Number)); !strings.Contains(text, lost) {
					t.Errorf("%s by %s: %s", path, who, text)
				}
			}
		}
	}
	if text := call("take", "/v1/release", leases(a.Held[0].Number)); !strings.Contains(text, `"lost":false`) {
		t.Errorf("released by its caller: %s, want it not lost", text)
	}
}
