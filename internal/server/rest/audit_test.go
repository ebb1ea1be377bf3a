package rest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// auditServer is a server with a catalog, whose callers have tokens.
type auditServer struct {
	t      *testing.T
	limits *catalog.Catalog
	send   func(caller, method, path, body string) (int, string)
}

func newAuditServer(t *testing.T) *auditServer {
	t.Helper()
	c, err := config.Parse("headgate.yaml", []byte("limits:\n  api: fixed-window 100/1h\n  login: sliding-log 5/15m\n"+
		"plans:\n  pro: {api: fixed-window 1000/1h}\n"))
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	s := memory.New(&memory.Config{Names: true})
	limits, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	by := catalog.By{Author: "file"}
	if _, _, err := limits.Apply(t.Context(), by, c.CatalogFile(), catalog.ApplyOnce); err != nil {
		t.Fatal(err)
	}
	file, tokens := authtest.Open(t, auth.Entry{Name: "oncall", Role: "admin"},
		auth.Entry{Name: "reader", Role: "read"}, auth.Entry{Name: "some", Role: "admin", Limits: []string{"login"}})
	h := rest.New(service.New(headgate.New(s, &headgate.Config{Names: limits}), c, limits), quiet,
		&rest.Config{Tokens: file})
	return &auditServer{t, limits, func(caller, method, path, body string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer "+tokens[caller])
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}}
}

// entries returns the entries of the audit that a query of a caller finds, the newest first, as lines.
func (a *auditServer) entries(caller, query string) (lines []string) {
	a.t.Helper()
	code, text := a.send(caller, "GET", "/v1/audit"+query, "")
	var out api.Audit
	if err := json.Unmarshal([]byte(text), &out); code != 200 || err != nil {
		a.t.Fatalf("status %d, %v: %s", code, err, text)
	}
	for _, e := range out.Entries {
		line := e.Verb + " by " + e.By
		if e.Key != nil {
			line += fmt.Sprintf(" %s %q", e.Limit, *e.Key)
		}
		lines = append(lines, strings.TrimRight(line+": "+e.Reason+" "+strings.Join(e.Changes, ", "), " "))
	}
	return lines
}

func TestOperatorActionsAreInTheAudit(t *testing.T) {
	t.Parallel()
	a := newAuditServer(t)
	for _, action := range []struct{ caller, path, body string }{
		{"oncall", "/v1/block", `{"limit":"api","key":"k","for":"1h","reason":"scans"}`},
		{"some", "/v1/block", `{"limit":"login","key":"","for":"1h"}`},
		{"oncall", "/v1/block", `{"limit":"api","key":"k","for":"0"}`},
		{"oncall", "/v1/reset", `{"limit":"api","key":"k","reason":"ours"}`},
		{"oncall", "/v1/refund", `{"limit":"api","key":"k","cost":2.5,"reason":"cut off"}`},
		{"some", "/v1/override", `{"limit":"login","key":"k","override":"sliding-log 50/1m","reason":"moves"}`},
		{"oncall", "/v1/override", `{"limit":"login","key":"k","remove":true}`},
	} {
		if code, text := a.send(action.caller, "POST", action.path, action.body); code != 200 {
			t.Fatalf("%s %s: status %d: %s", action.path, action.body, code, text)
		}
	}
	setLine := `change by some: moves + override login of "k" = sliding-log 50/1m; "moves"`
	removeLine := `change by oncall:  - override login of "k" = sliding-log 50/1m; "moves"`
	blockLine := `block by some login "":`
	lines := []string{
		removeLine, setLine, `refund by oncall api "k": up to 2.5: cut off`, `reset by oncall api "k": ours`,
		`unblock by oncall api "k":`, blockLine,
		`block by oncall api "k": scans`,
	}
	for _, tt := range []struct {
		caller, query string
		want          []string
	}{
		{"reader", "?max=7", lines},
		{"oncall", "?max=2", lines[:2]},
		{"oncall", "?key=k&limit=api", []string{lines[2], lines[3], lines[4], lines[6]}},
		{"oncall", "?key=", []string{blockLine}},
		{"oncall", "?limit=login&max=3", []string{removeLine, setLine, blockLine}},
		// A caller that may touch one limit sees nothing of other limits, nor of changes without a limit.
		{"some", "", []string{removeLine, setLine, blockLine, "change by file:  + login = sliding-log 5/15m"}},
	} {
		if got := a.entries(tt.caller, tt.query); strings.Join(got, "\n") != strings.Join(tt.want, "\n") {
			t.Errorf("%s gets %s: got\n%s\nwant\n%s", tt.caller, tt.query, strings.Join(got, "\n"),
				strings.Join(tt.want, "\n"))
		}
	}
}

func TestUsageShowsAnOverrideWithItsEnd(t *testing.T) {
	t.Parallel()
	a := newAuditServer(t)
	body := `{"limit":"login","key":"bob","override":"sliding-log 50/1m","for":"1h","reason":"moves his mail"}`
	if code, text := a.send("oncall", "POST", "/v1/override", body); code != 200 || !strings.HasPrefix(text, `{"version":2,"changes":[{"kind":"override","name":"login","key":"bob"`) {
		t.Fatalf("status %d: %s", code, text)
	}
	_, text := a.send("reader", "GET", "/v1/usage?key=bob&limit=login&authors=true", "")
	var usage api.Usage
	if err := json.Unmarshal([]byte(text), &usage); err != nil {
		t.Fatal(err)
	}
	l := &usage.Limits[0]
	if l.Rule != "sliding-log 50/1m" || l.Applied != "override" || l.AppliedBy != "oncall" ||
		l.AppliedReason != "moves his mail" || l.AppliedUntil == nil {
		t.Fatalf("got %s, want the override with its author and reason", text)
	}
	if duration := *l.AppliedUntil - l.At; duration < 59*60_000_000 || duration > 60*60_000_000 {
		t.Errorf("the override ends in %d µs, want 59 to 60 minutes", duration)
	}
}

func TestAnswersOfOverrideAuditAndMe(t *testing.T) {
	t.Parallel()
	a := newAuditServer(t)
	for _, tt := range []struct {
		caller, method, path, body string
		code                       int
		want                       string
	}{
		{"oncall", "POST", "/v1/override", `{"limit":"login","override":"unlimited"}`, 400, "key"},
		{"oncall", "POST", "/v1/override", `{"key":"k","override":"unlimited"}`, 400, "limit"},
		{"oncall", "POST", "/v1/override", `{"limit":"nope","key":"k","override":"unlimited"}`, 400, "nope"},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k"}`, 400, `"field":"override"`},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k","override":"fast"}`, 400, `"field":"override"`},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k","override":"unlimited","for":"soon"}`, 400, `"field":"for"`},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k","remove":true,"for":"1h"}`, 400, `"field":"remove"`},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k","remove":true}`, 400, "has none"},
		{"oncall", "POST", "/v1/override", `{"limit":"login","key":"k","override":"concurrency 2 ttl 1s"}`, 400, "acquired"},
		{"some", "POST", "/v1/override", `{"limit":"api","key":"k","override":"unlimited"}`, 403, "may not touch"},
		{"reader", "POST", "/v1/override", `{"limit":"login","key":"k","override":"unlimited"}`, 403, "admin"},
		{"reader", "GET", "/v1/audit?max=0", "", 400, `"field":"max"`},
		{"reader", "GET", "/v1/audit?max=1001", "", 400, `"field":"max"`},
		{"reader", "GET", "/v1/audit?limit=login&limit=api", "", 400, `"field":"limit"`},
		{"reader", "GET", "/v1/audit?who=me", "", 400, "known are"},
		{"some", "GET", "/v1/audit?limit=api", "", 403, "may not touch"},
		{"reader", "GET", "/v1/me", "", 200, `{"name":"reader","role":"read","tokens":true,"actions":true}`},
		{"some", "GET", "/v1/me", "", 200, `"limits":["login"]`},
		{"nobody", "GET", "/v1/me", "", 401, "token"},
	} {
		code, text := a.send(tt.caller, tt.method, tt.path, tt.body)
		if code != tt.code || !strings.Contains(text, tt.want) {
			t.Errorf("%+v: got status %d: %s", tt, code, text)
		}
	}
	if v, _ := a.limits.Version(); v != 1 {
		t.Errorf("got version %d, want 1: bad requests change nothing", v)
	}
}
