package rest_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// serveEditedCatalog serves a catalog with four versions: 1 has api, web and a plan, 2 changes api, 3 has overrides, of
// which one has ended, and 4 removes web.
func serveEditedCatalog(t *testing.T) (http.Handler, *catalog.Catalog) {
	t.Helper()
	now := int64(1795600000_000000)
	s := memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }})
	log := slog.New(slog.DiscardHandler)
	limits, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	limit := func(name, text string) headgate.Limit {
		l, err := headgate.ParseNamed(name, text)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	c, err := config.Parse("headgate.yaml", []byte("limits:\n  api: token-bucket 10/1m\n  web: fixed-window 5/1h\n"+
		"plans:\n  gold: {api: token-bucket 99/1m}\n"))
	if err != nil {
		t.Fatal(err)
	}
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = limits.Apply(t.Context(), catalog.By{Author: "file"}, c.CatalogFile(), catalog.ApplyOnce)
	must(nil, err)
	by := catalog.By{Author: "ann", Reason: "<b>more</b>"}
	must(limits.Set(t.Context(), by, catalog.Definition{Limit: limit("api", "token-bucket 20/1m")}))
	must(limits.Override(t.Context(), by,
		catalog.Override{Limit: limit("api", "token-bucket 50/1m"), Key: "alice", Reason: "VIP"},
		catalog.Override{Limit: limit("api", "token-bucket 60/1m"), Key: "bob", Until: limits.Now().Add(time.Minute)},
		catalog.Override{Limit: limit("web", "fixed-window 6/1h"), Key: "10.", Prefix: true}))
	must(limits.Remove(t.Context(), by, "web"))
	now += time.Hour.Microseconds()
	if err := limits.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rest.New(service.New(headgate.New(s, &headgate.Config{Names: limits}), c, limits), log, nil), limits
}

// sendAs sends a request as a caller. A nil caller may do everything.
func sendAs(h http.Handler, caller *auth.Caller, method, path, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r.WithContext(auth.WithCaller(r.Context(), caller)))
	return w.Code, w.Body.String()
}

func TestReadingTheCatalog(t *testing.T) {
	t.Parallel()
	h, _ := serveEditedCatalog(t)
	limited := &auth.Caller{Name: "bob", Role: auth.RoleRead, Limits: []string{"web"}}
	for _, c := range []struct {
		caller        *auth.Caller
		path          string
		code          int
		want, notWant string
	}{
		{nil, "/v1/catalog", 200, `"limit":"token-bucket 20/1m burst 20"`, `"name":"web"`},
		{nil, "/v1/catalog", 200, `{"name":"gold","limits":[{"name":"api","limit":"token-bucket 99/1m burst 99"`, ""},
		{limited, "/v1/catalog", 200, `"limits":[],"plans":[]`, "api"},
		{nil, "/v1/overrides", 200, `"key":"alice","override":"token-bucket 50/1m burst 50"`, `"bob"`},
		{nil, "/v1/overrides", 200, `"until":null,"reason":"VIP"`, ""},
		{nil, "/v1/overrides?max=1", 200, `"next_limit":"api","next_key":"alice"`, ""},
		{nil, "/v1/overrides?max=1&after_limit=api&after_key=alice", 200, `"overrides":[]`, "alice"},
		{limited, "/v1/overrides", 200, `"prefix":true`, "alice"},
		{limited, "/v1/overrides?max=1", 200, `"prefix":true`, "alice"}, // nor is alice in the next page's position
		{nil, "/v1/versions", 200, `"version":4,"at":1795600000000000,"by":"ann","reason":"<b>more</b>"`, ""},
		{nil, "/v1/versions?limit=web", 200, `"version":4`, `"version":2`},
		{nil, "/v1/versions?before=3&max=1", 200, `"next":2`, `"version":1,`},
		{limited, "/v1/versions", 200, `- web = fixed-window 5/1h`, "api"},
		{limited, "/v1/versions?limit=api", 403, "may not touch", ""},
		{nil, "/v1/difference?from=1&to=2", 200, `"before":"token-bucket 10/1m burst 10","after":"token-bucket 20/1m ` +
			`burst 20","text":"~ api = token-bucket 20/1m burst 20   (was token-bucket 10/1m burst 10)"`, "web"},
		{nil, "/v1/difference?from=2&to=1", 200, `"after":"token-bucket 10/1m burst 10"`, ""},
		{nil, "/v1/difference?from=2&to=2", 200, `"changes":[]`, ""},
		{nil, "/v1/difference?from=0&to=4", 200, `"name":"gold"`, `"web","before"`}, // web was added and removed
		{limited, "/v1/difference?from=1&to=4", 200, `"name":"web"`, "api"},
		{nil, "/v1/difference?from=1", 400, `"field":"to"`, ""},
		{nil, "/v1/difference?from=1&to=9", 400, "the newest is 4", ""},
		{nil, "/v1/difference?from=x&to=1", 400, "not the number of a version", ""},
		{nil, "/v1/versions?max=0", 400, "not a number from 1 to 500", ""},
		{nil, "/v1/overrides?limit=api", 400, "unknown parameter", ""},
	} {
		code, text := sendAs(h, c.caller, "GET", c.path, "")
		if code != c.code || !strings.Contains(text, c.want) || c.notWant != "" && strings.Contains(text, c.notWant) {
			t.Errorf("%s: status %d, want %d with %s, not %s: %s", c.path, code, c.code, c.want, c.notWant, text)
		}
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	h, limits := serveEditedCatalog(t)
	limited := &auth.Caller{Name: "bob", Role: auth.RoleAdmin, Limits: []string{"web"}}
	for i, c := range []struct {
		caller  *auth.Caller
		body    string
		code    int
		want    string
		version int64
	}{
		{nil, `{"version":1,"dry_run":true}`, 200, `{"version":4,"changes":[{"kind":"limit","name":"api"`, 4},
		{nil, `{"limits":["api"]}`, 400, `"field":"version"`, 4},
		{nil, `{"version":9}`, 400, "there is no version 9", 4},
		{nil, `{"version":1,"limits":["nothing"]}`, 400, "unknown", 4},
		{nil, `{"version":1,"seen":3}`, 409, `"field":"seen"`, 4},
		{nil, `{"version":1,"seen":0}`, 409, `"field":"seen"`, 4},
		{nil, `{"version":1,"limits":[]}`, 400, `limits`, 4},
		{limited, `{"version":1}`, 403, "may not roll back all limits", 4},
		{limited, `{"version":1,"limits":["api"]}`, 403, "may not touch", 4},
		{limited, `{"version":1,"limits":["web"],"seen":4,"reason":"too strict"}`, 200, `"version":5`, 5},
		{nil, `{"version":1,"limits":["web"]}`, 200, `"changes":[]`, 5},
		{nil, `{"version":1}`, 200, `"version":6`, 6},
	} {
		code, text := sendAs(h, c.caller, "POST", "/v1/rollback", c.body)
		version, _ := limits.Version()
		if code != c.code || !strings.Contains(text, c.want) || version != c.version {
			t.Errorf("%d %s: status %d, version %d, want %d, %d: %s", i, c.body, code, version, c.code, c.version, text)
		}
	}
	list, err := limits.History(t.Context(), "", 2)
	if err != nil || list[1].Author != "bob" || list[1].Reason != "too strict" {
		t.Errorf("got %v, %v, want version 5 by bob", list, err)
	}
	if l, err := limits.Get("api"); err != nil || fmt.Sprint(l) != "token-bucket 10/1m burst 10" {
		t.Errorf("api: got %v, %v, want token-bucket 10/1m burst 10", l, err)
	}
}

func TestLimitsPlansAndOverridesAreSet(t *testing.T) {
	t.Parallel()
	h, limits := serveEditedCatalog(t)
	limited := &auth.Caller{Name: "bob", Role: auth.RoleAdmin, Limits: []string{"web"}}
	for i, c := range []struct {
		caller     *auth.Caller
		path, body string
		code       int
		want       string
		version    int64
	}{
		{nil, "limit", `{"name":"api","limit":"token-bucket 30/1m","dry_run":true}`, 200, `{"version":4,"changes":[{"kind":"limit",` +
			`"name":"api","before":"token-bucket 20/1m burst 20","after":"token-bucket 30/1m burst 30"`, 4},
		{nil, "limit", `{"name":"api","limit":"token-bucket 20/1m"}`, 200, `{"version":4,"changes":[]}`, 4},
		{nil, "limit", `{"name":"api","limit":"token-bucket 30/"}`, 400, `"field":"limit"`, 4},
		{nil, "limit", `{"name":"API","limit":"token-bucket 30/1m"}`, 400, `"field":"name"`, 4},
		{nil, "limit", `{"name":"api"}`, 400, `"field":"limit"`, 4},
		{nil, "limit", `{"name":"api","limit":"concurrency 3 ttl 30s"}`, 400, "is acquired as concurrency 3 ttl 30s", 4},
		{nil, "limit", `{"name":"api","limit":"token-bucket 30/1m","seen":3}`, 409, `"field":"seen"`, 4},
		{nil, "limit", `{"name":"fresh","limit":"token-bucket 30/1m","seen":0}`, 409, `"field":"seen"`, 4},
		{limited, "limit", `{"name":"api","limit":"token-bucket 30/1m"}`, 403, "may not touch", 4},
		{limited, "plan", `{"key":"carol","plan":"gold"}`, 403, "may not give plans", 4},
		{limited, "limit", `{"name":"web","limit":"token-bucket 30/1m","description":"pages","reason":"a sale"}`, 200, `"version":5`, 5},
		{nil, "plan", `{"key":"carol","plan":"gold","for":"1h","reason":"trial"}`, 200, `"version":6,"changes":[{"kind":"assignment"`, 6},
		{nil, "plan", `{"key":"carol","plan":"silver"}`, 400, `the catalog has gold`, 6},
		{nil, "plan", `{"plan":"gold"}`, 400, `"field":"key"`, 6},
		{nil, "plan", `{"key":"carol","plan":"gold","remove":true}`, 400, `"field":"remove"`, 6},
		{nil, "plan", `{"key":"carol","remove":true}`, 200, `"version":7,"changes":[{"kind":"assignment"`, 7},
		{nil, "override", `{"limit":"api","key":"alice","override":"token-bucket 70/1m"}`, 200, `"before":"token-bucket 50/1m burst 50`, 8},
	} {
		code, text := sendAs(h, c.caller, "POST", "/v1/"+c.path, c.body)
		version, _ := limits.Version()
		if code != c.code || !strings.Contains(text, c.want) || version != c.version {
			t.Errorf("%d %s: status %d, version %d, want %d, %d: %s", i, c.body, code, version, c.code, c.version, text)
		}
	}
	if d, ok := limits.Lookup("web"); !ok || d.Description != "pages" || d.String() != "token-bucket 30/1m burst 30" {
		t.Errorf("web: got %v, want token-bucket 30/1m burst 30, pages", d)
	}
	if list, err := limits.History(t.Context(), "web", 1); err != nil || list[0].Author != "bob" || list[0].Reason != "a sale" {
		t.Errorf("got %v, %v, want a version by bob", list, err)
	}
}

// TestALimitIsRenamed charges a key, renames the limit, and asks about the key by both names.
func TestALimitIsRenamed(t *testing.T) {
	t.Parallel()
	h, _ := serveEditedCatalog(t)
	limited := &auth.Caller{Name: "bob", Role: auth.RoleAdmin, Limits: []string{"web", "site"}}
	ofNew := &auth.Caller{Role: auth.RoleAdmin, Limits: []string{"rpc"}}
	for i, c := range []struct {
		caller                   *auth.Caller
		method, path, body, want string
		code                     int
	}{
		{nil, "POST", "take", `{"limit":"api","key":"k","cost":5}`, `"remaining":15`, 200},
		{limited, "POST", "limit", `{"name":"site","renamed_from":"api"}`, "may not touch", 403},
		{limited, "POST", "limit", `{"name":"rpc","renamed_from":"web"}`, "may not touch", 403},
		{nil, "POST", "limit", `{"name":"Rpc","renamed_from":"api"}`, `"field":"name"`, 400},
		{nil, "POST", "limit", `{"name":"rpc","renamed_from":"none"}`, `unknown`, 400},
		{nil, "POST", "limit", `{"name":"rpc","renamed_from":"api","dry_run":true}`, `{"version":4,"changes":[{"kind":"limit","name":"rpc"`, 200},
		{nil, "POST", "limit", `{"name":"rpc","renamed_from":"api"}`, `"before":"","after":"renamed from api","text":"+ rpc = renamed from api"`, 200},
		{nil, "POST", "limit", `{"name":"rpc","renamed_from":"api"}`, `"changes":[]`, 200},
		{nil, "POST", "limit", `{"name":"api","limit":"token-bucket 30/1m"}`, `was renamed to rpc`, 400},
		{nil, "POST", "limit", `{"name":"rpc","limit":"token-bucket 40/1m"}`, `"text":"~ api = token-bucket 40/1m burst 40 `, 200},
		{nil, "POST", "take", `{"limit":"rpc","key":"k"}`, `"limit":"api","capacity":40,"remaining":34`, 200},
		{nil, "GET", "catalog", "", `{"name":"api","renamed_to":"rpc","limit":"token-bucket 40/1m burst 40"`, 200},
		{nil, "GET", "cells?limit=rpc", "", `"limit":"api","key":"k"`, 200},
		{nil, "GET", "cells?limit=rpc&after_limit=rpc&after_key=a", "", `"limit":"api","key":"k"`, 200},
		{ofNew, "GET", "limits", "", `{"limits":[{"name":"api",`, 200},
		{ofNew, "GET", "catalog", "", `"limits":[{"name":"api","renamed_to":"rpc"`, 200},
		{ofNew, "GET", "usage?key=k", "", `"limit":"api","key":"k"`, 200},
		{ofNew, "POST", "inspect", `{"limit":"api","key":"k"}`, `"limit":"api","key":"k"`, 200},
		{ofNew, "POST", "take", `{"limit":"web","key":"k"}`, "may not touch", 403},
		{ofNew, "POST", "take", `{"limit":"none","key":"k"}`, "may not touch", 403},
		{nil, "GET", "usage?key=k&limit=rpc", "", `"limit":"api","key":"k"`, 200},
		{nil, "POST", "override", `{"limit":"rpc","key":"k","override":"token-bucket 99/1m"}`, `"name":"api","key":"k"`, 200},
		{ofNew, "GET", "overrides", "", `"limit":"api","key":"k"`, 200},
		{nil, "POST", "block", `{"limit":"rpc","key":"k","for":"1m"}`, `"limit":"api"`, 200},
		{nil, "POST", "reset", `{"limit":"api","key":"k"}`, `"existed":true`, 200},
		{nil, "GET", "audit?limit=api", "", `"verb":"block","limit":"api"`, 200},
		{ofNew, "GET", "audit?limit=rpc", "", `"verb":"block"`, 200},
		{nil, "GET", "audit?limit=rpc", "", `"verb":"reset"`, 200},
		{nil, "GET", "versions?limit=rpc", "", `"version":2`, 200},
		{nil, "POST", "rollback", `{"version":4,"limits":["rpc"]}`, `"name":"rpc"`, 200},
		{nil, "POST", "take", `{"limit":"rpc","key":"k"}`, `unknown`, 400},
	} {
		if code, text := sendAs(h, c.caller, c.method, "/v1/"+c.path, c.body); code != c.code || !strings.Contains(text, c.want) {
			t.Errorf("%d %s %s: status %d, want %d with %s: %s", i, c.path, c.body, code, c.code, c.want, text)
		}
	}
}

// TestACallerOfOneNameOfALimit acquires and releases by the new name, and rolls back a limit of which a former name is
// that of another limit by now.
func TestACallerOfOneNameOfALimit(t *testing.T) {
	t.Parallel()
	h, limits := serveEditedCatalog(t)
	tasks := &auth.Caller{Name: "ann", Role: auth.RoleAdmin, Limits: []string{"tasks"}}
	send := func(caller *auth.Caller, path, body, want string) (answer string) {
		t.Helper()
		code, answer := sendAs(h, caller, "POST", "/v1/"+path, body)
		if !strings.Contains(answer, want) {
			t.Errorf("%s %s: status %d, %s; want %s", path, body, code, answer, want)
		}
		return answer
	}
	send(nil, "limit", `{"name":"jobs","limit":"concurrency 1 ttl 1h"}`, `"changes"`)
	before, _ := limits.Version()
	send(nil, "limit", `{"name":"tasks","renamed_from":"jobs"}`, `"changes"`)
	var lease struct{ Held json.RawMessage }
	if err := json.Unmarshal([]byte(send(tasks, "acquire", `{"limit":"tasks","key":"k"}`, `"allowed":true`)), &lease); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is not there any more
		send(tasks, "release", fmt.Sprintf(`{"held":%s}`, lease.Held), `"lost"`)
	}
	send(tasks, "acquire", `{"limit":"tasks","key":"k"}`, `"allowed":true`)
	send(tasks, "rollback", fmt.Sprintf(`{"version":%d,"limits":["tasks"],"dry_run":true}`, before), `"name":"tasks"`)
	if _, err := limits.Remove(t.Context(), catalog.By{}, "tasks"); err != nil {
		t.Fatal(err)
	}
	send(nil, "limit", `{"name":"jobs","limit":"concurrency 9 ttl 1h"}`, `"changes"`)
	send(nil, "limit", `{"name":"tasks","limit":"concurrency 1 ttl 1h"}`, `"changes"`)
	send(tasks, "rollback", fmt.Sprintf(`{"version":%d,"limits":["tasks"]}`, before+1), "may not touch all limits")
}
