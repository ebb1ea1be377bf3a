package rest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// unstableStore fails with store.ErrUnavailable while *away is true.
type unstableStore struct {
	store.Store
	away *bool
}

func (s unstableStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if *s.away {
		return store.ErrUnavailable
	}
	return s.Store.Apply(ctx, ops, outs)
}

func TestTrafficOfLimitsAndTopKeys(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte("limits: {api: fixed-window 2/30d, login: fixed-window 1/30d}\nallow_notations: true\n"))
	if err != nil {
		t.Fatal(err)
	}
	now, away := time.Now(), false
	counter := traffic.New(&traffic.Config{
		Defined: func(name string) bool { return name == "api" || name == "login" },
		Clock:   func() time.Time { return now },
	})
	s := unstableStore{memory.New(&memory.Config{Names: true}), &away}
	svc := service.New(headgate.New(s, &headgate.Config{Names: c, Observer: service.Observers{counter}}), c, nil)
	svc.UseTraffic(counter)
	h := rest.New(svc, slog.New(slog.DiscardHandler), nil)
	for i := range 5 {
		send(h, "POST", "/v1/take", `{"limit":"api","key":"<b>\u0001"}`)
		send(h, "POST", "/v1/take", `{"limit":"api","key":"b","cost":0.5}`)
		send(h, "POST", "/v1/check", `{"limit":"api","key":"b"}`)
		send(h, "POST", "/v1/take", `{"limit":"fixed-window 1/30d","key":"c"}`)
		send(h, "POST", "/v1/take", fmt.Sprintf(`{"charges":[{"limit":"api","key":"d"},{"limit":"login","key":"k%d"}]}`, i%2))
	}
	now = now.Add(time.Second)
	getTraffic := func(query string) map[string]any {
		t.Helper()
		code, out, _ := send(h, "GET", "/v1/traffic?"+query, "")
		if code != http.StatusOK {
			t.Fatalf("%s: status %d, %v", query, code, out)
		}
		return out
	}
	keys := func(out map[string]any) string {
		text := ""
		for _, element := range out["keys"].([]any) {
			key := element.(map[string]any)
			text += fmt.Sprintf("%v %q %v %v", key["limit"], key["key"], key["used"], key["refused"])
			if state, ok := key["now"].(map[string]any); ok {
				text += fmt.Sprintf(" %v/%v", state["used"], state["capacity"])
			}
			text += "\n"
		}
		return text
	}
	out := getTraffic("seconds=1&by=used")
	if got, want := fmt.Sprint(out["limits"]), "[map[admitted:[1] failed:[0] limit:(inline) refused:[4]] "+
		"map[admitted:[7] failed:[0] limit:api refused:[7]] map[admitted:[1] failed:[0] limit:login refused:[0]]]"; got != want {
		t.Errorf("limits\n%s, want\n%s", got, want)
	}
	// In limits a request counts once, for the limit that its decision is about. In keys an admitted request of several
	// charges counts for each of its keys, and a refused one for the keys of the charges that did not fit.
	const inline = "fixed-window 1/30d \"c\" 1 4 1/1\n"
	const markupKey = "api \"<b>\\x01\" 2 3 2/2\n"
	for query, want := range map[string]string{
		"by=used&top=3":                markupKey + "api \"b\" 2 1 2/2\napi \"d\" 2 3 2/2\n",
		"":                             inline + markupKey + "api \"d\" 2 3 2/2\nlogin \"k0\" 1 2 1/1\napi \"b\" 2 1 2/2\nlogin \"k1\" 1 1 1/1\n",
		"limit=login":                  "login \"k0\" 1 2 1/1\nlogin \"k1\" 1 1 1/1\n",
		"limit=fixed-window+1/30d":     inline,
		"limit=api&by=used&top=0":      "",
		"limit=fixed-window+1/29d":     "",
		"limit=api&by=refused&top=100": markupKey + "api \"d\" 2 3 2/2\napi \"b\" 2 1 2/2\n",
	} {
		if got := keys(getTraffic(query)); got != want {
			t.Errorf("%s:\n%swant\n%s", query, got, want)
		}
	}
	recent := getTraffic("top=1")["keys"].([]any)[0].(map[string]any)["recent"].([]any)
	if recent[29].(float64)+recent[28].(float64) != 4 || len(recent) != 30 {
		t.Errorf("recent: %v, want 30 parts of 10 s, 4 refusals in the last two", recent)
	}
	away = true
	out = getTraffic("top=2")
	if got, want := keys(out), "fixed-window 1/30d \"c\" 1 4\napi \"<b>\\x01\" 2 3\n"; got != want {
		t.Errorf("while the store is away:\n%swant\n%s", got, want)
	}
	if p, _ := out["problem"].(map[string]any); p["status"] != 503.0 {
		t.Errorf("while the store is away: problem %v, want the status 503", out["problem"])
	}
}

// TestTrafficHasOnlyLimitsThatTheCallerMayTouch checks the limits, the keys, and the error of a query of another limit.
func TestTrafficHasOnlyLimitsThatTheCallerMayTouch(t *testing.T) {
	t.Parallel()
	c, err := config.Parse("c.yaml", []byte("limits: {api: fixed-window 2/30d, login: fixed-window 1/30d}"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	counter := traffic.New(&traffic.Config{Clock: func() time.Time { return now }})
	memoryStore := memory.New(&memory.Config{Names: true})
	l := headgate.New(memoryStore, &headgate.Config{Names: c, Observer: service.Observers{counter}})
	svc := service.New(l, c, nil)
	svc.UseTraffic(counter)
	for _, limit := range []headgate.Limit{
		headgate.MustNamed("api"), headgate.MustNamed("login"), headgate.MustParse("fixed-window 1/1h"),
	} {
		if _, err := l.Allow(t.Context(), limit, "k"); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Second)
	ctx := auth.WithCaller(t.Context(), &auth.Caller{Name: "some", Role: auth.RoleRead, Limits: []string{"api"}})
	got, err := svc.Traffic(ctx, &api.TrafficQuery{By: api.ByUsed, Top: 10, Seconds: 2}, func(int) error { return nil })
	if err != nil || len(got.Limits) != 1 || got.Limits[0].Limit != "api" || len(got.Keys) != 1 || got.Keys[0].Limit != "api" {
		t.Errorf("got %+v, %v, want one limit and one key of api", got, err)
	}
	_, err = svc.Traffic(ctx, &api.TrafficQuery{Limit: "login"}, nil)
	if !errors.Is(err, auth.ErrForbidden) {
		t.Errorf("traffic of login: %v, want %v", err, auth.ErrForbidden)
	}
}
