package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/auth/authtest"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// unavailableStore is a store that cannot be reached.
type unavailableStore struct{ store.Store }

func (unavailableStore) Apply(context.Context, []law.Op, []law.Outcome) error {
	return fmt.Errorf("db: apply 1 ops: %w: dial tcp 192.0.2.1:5432:\n\tconnection refused", store.ErrUnavailable)
}

// TestOnlyReadersAreToldWhichStoreIsAway checks the problems of /v1/take and /readyz, and the answer of /v1/me.
func TestOnlyReadersAreToldWhichStoreIsAway(t *testing.T) {
	t.Parallel()
	file, tokens := authtest.Open(t, auth.Entry{Name: "app", Role: auth.RoleTake.String()},
		auth.Entry{Name: "viewer", Role: auth.RoleRead.String()})
	since := time.Now().Add(-28 * time.Second)
	var lastErr error
	h := rest.New(service.New(headgate.New(unavailableStore{memory.New(nil)}, nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), &rest.Config{Tokens: file, Away: func(err error) *api.Away {
			if err != nil {
				lastErr = err
			}
			return api.NewAway("postgres://db/app", since, lastErr)
		}})
	sendWithToken := func(who, method, path, body string) (status int, text string) {
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		if who != "" {
			r.Header.Set("Authorization", "Bearer "+tokens[who])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	want := "The store postgres://db/app is away since " + since.UTC().Format(time.TimeOnly) + " UTC (28s): dial tcp " +
		"192.0.2.1:5432: connection refused. Meanwhile requests are answered 503; limits with away allow or away share " +
		"are decided without it."
	const take = `{"limit":"token-bucket 1/s","key":"k"}`
	for _, tt := range []struct {
		who, method, path, body string
		namesStore              bool
	}{
		{"app", http.MethodPost, "/v1/take", take, false},
		{"", http.MethodGet, "/readyz", "", false},
		{"app", http.MethodGet, "/readyz", "", false},
		{"viewer", http.MethodGet, "/readyz", "", true},
	} {
		status, text := sendWithToken(tt.who, tt.method, tt.path, tt.body)
		var p api.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || status != http.StatusServiceUnavailable ||
			p.Title != "The store is not available" {
			t.Errorf("%s %s by %q: got status %d %s, want 503", tt.method, tt.path, tt.who, status, text)
		}
		got := strings.HasPrefix(p.Detail, want)
		if got != tt.namesStore || strings.Contains(text, "192.0.2.1") != got {
			t.Errorf("%s %s by %q: %s; want the store named: %v", tt.method, tt.path, tt.who, p.Detail, tt.namesStore)
		}
	}
	if _, text := sendWithToken("viewer", http.MethodGet, "/v1/me", ""); !strings.Contains(text, want) {
		t.Errorf("/v1/me: got %s, want %s", text, want)
	}
}
