package whatif_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/whatif"
)

// TestLogsBelongToTheirCaller checks that a caller can use no log of another caller, and no forbidden history or limit.
func TestLogsBelongToTheirCaller(t *testing.T) {
	t.Parallel()
	s := newServer(t, whatif.Config{})
	s.caller = &auth.Caller{Name: "ann", Role: auth.RoleRead}
	a := s.upload(t, url.Values{"key": {"ip"}}, accessLog())
	s.caller = &auth.Caller{Name: "bob", Role: auth.RoleRead, Limits: []string{"api"}}
	v := url.Values{"id": {a.ID}, "limit": {"api"}}
	if code, text := s.call(t, http.MethodGet, "/v1/whatif", v, nil); code != http.StatusNotFound {
		t.Errorf("another caller's log: status %d, want 404: %s", code, text)
	}
	if b := s.upload(t, url.Values{"key": {"ip"}}, accessLog()); b.ID == a.ID {
		t.Error("two callers have the same id")
	}
	code, text := s.call(t, http.MethodPost, "/v1/whatif", url.Values{"recorded": {"login"}}, nil)
	if code != http.StatusForbidden {
		t.Errorf("a forbidden history: status %d, want 403: %s", code, text)
	}
	v.Set("limit", "login")
	if code, text := s.call(t, http.MethodGet, "/v1/whatif", v, nil); code != http.StatusForbidden {
		t.Errorf("a forbidden limit: status %d, want 403: %s", code, text)
	}
}

// BenchmarkSlider measures the request that moving a slider sends.
func BenchmarkSlider(b *testing.B) {
	names, err := config.Parse("headgate.yaml", []byte(configText))
	if err != nil {
		b.Fatal(err)
	}
	logs := whatif.New(&whatif.Config{Names: names})
	defer logs.Close()
	mux := http.NewServeMux()
	for _, r := range logs.Routes() {
		mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, q *http.Request) {
			text, err := r.Answer(w, q)
			if err != nil {
				b.Error(err)
			}
			_, _ = w.Write(text)
		})
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/whatif?key=ip", bytes.NewReader(accessLog())))
	var a api.WhatIfLog
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		b.Fatal(err, w.Body)
	}
	for i := 0; b.Loop(); i++ {
		v := url.Values{"id": {a.ID}, "limit": {fmt.Sprintf("token-bucket %d/1m burst 5", i%50+1)}}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/whatif?"+v.Encode(), nil))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
