package api_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/server/api"
)

func TestNewAwayHasTheReasonInOneSentence(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]string{
		"postgres: apply 1 ops: store unavailable: connection\nrefused": "connection refused",
		"redis: apply 1 ops: store is full: OOM command not allowed.":   "OOM command not allowed",
		"store is read-only: a standby":                                 "store is read-only: a standby",
	} {
		away := api.NewAway("redis://db", time.Now(), errors.New(reason))
		if away.Reason != want || !strings.Contains(away.Text, "): "+want+". Meanwhile ") {
			t.Errorf("%q: got %q, %q, want %q", reason, away.Reason, away.Text, want)
		}
	}
}
