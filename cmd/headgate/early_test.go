package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestLimitsAnswerAsTheySayFromTheStart: a server whose store comes later goes by the policies of
// the limits that requests or the config file say, and by the store soon after it came.
func TestLimitsAnswerAsTheySayFromTheStart(t *testing.T) {
	t.Parallel()
	answerFromTheStart(t, newRedis)
}

func TestLimitsOfADatabaseAnswerAsTheySayFromTheStart(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	for name, begin := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answerFromTheStart(t, begin)
		})
	}
}

func answerFromTheStart(t *testing.T, begin func(context.Context) (*dbtest.Server, error)) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "headgate.yaml")
	if err := os.WriteFile(config, []byte("allow_notations: true\nlimits:\n  shut: fixed-window 1000/30d\n"+
		"  open: fixed-window 1000/30d away allow\n  part: fixed-window 1000/30d away share\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	db, url := database(t, begin)
	migrate(t, url)
	db.Crash()
	s := start(t, t.TempDir(), "--store", url, "--config", config)
	body := func(limit string) string { return `{"limit":"` + limit + `","key":"k"}` }
	policies := map[string]bool{
		"shut": false, "open": true, "part": false, "nobody.knows": false,
		"fixed-window 500/30d": false, "fixed-window 500/30d away allow": true, "fixed-window 500/30d away share": false,
	}
	for range 5 { // before and after the breaker has opened
		for limit, allowed := range policies {
			d, status, err := s.take(http.DefaultClient, body(limit))
			want := http.StatusServiceUnavailable
			if allowed {
				want = http.StatusOK
			}
			if err != nil || status != want || d.Allowed != allowed || allowed && d.Via != "fallback" {
				t.Errorf("%s before the store is there: %d, %+v, %v", limit, status, d, err)
			}
		}
	}
	if err := db.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for limit := range policies {
		if limit == "nobody.knows" {
			continue
		}
		s.until(t, limit+" decided by the store", func() bool {
			d, status, err := s.take(http.DefaultClient, body(limit))
			return err == nil && status == http.StatusOK && d.Allowed && d.Via != "fallback"
		})
	}
	if _, status, err := s.take(http.DefaultClient, body("nobody.knows")); err != nil || status != http.StatusNotFound &&
		status != http.StatusBadRequest {
		t.Errorf("a limit that is not known: %d, %v", status, err)
	}
	s.ready(t, http.StatusOK)
	s.until(t, "that the store is back", func() bool { _, back := s.lines(); return back > 0 })
	said := s.stop(t)
	if gone, back := s.lines(); gone != 1 || back != 1 || strings.Contains(said, "the store is away") ||
		strings.Contains(said, "the catalogue of limits cannot be read") || strings.Contains(said, "share of limits") {
		t.Errorf("more than two lines about one time that the store was away: %s", said)
	}
	if !strings.Contains(said, "answered_without_it=") {
		t.Errorf("the number of decisions without the store is not told: %s", said)
	}
}
