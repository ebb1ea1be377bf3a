package service_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store/memory"
)

// TestHintsAreForAShell checks that a shell reads unusual keys from the command in a hint, and that the command has no
// characters that control a terminal.
func TestHintsAreForAShell(t *testing.T) {
	t.Parallel()
	s := service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil)
	for _, key := range []string{
		"alice", "", "two words", "it's", `"quoted"`, `back\slash`, "$(id)", "`id`", "a;b&c|d>e", "*", "~", "-x", "--for",
		"\x1b[2J", "new\nline", "it's\ttabbed \\ \"\x01", "ünïcödé", "\u202eback", "10.0.0.1:80", "#5", "!9",
	} {
		if _, err := s.Block(t.Context(), &api.Block{
			Subject: api.Subject{Limit: "token-bucket 5/1m", Key: key}, For: "1h",
		}); err != nil {
			t.Fatal(err)
		}
		_, limits := usage(t, s, api.UsageQuery{Key: key, Limits: []string{"token-bucket 5/1m"}})
		_, command, ok := strings.Cut(limits["token-bucket 5/1m burst 5"].Hint, ": headgate block --for 0 ")
		if !ok || strings.ContainsAny(command, "\x1b\n\t\x01\u202e") {
			t.Errorf("%q: got %q, want a command without control characters", key, command)
			continue
		}
		command = strings.TrimPrefix(command, "-- ")
		out, err := exec.Command("bash", "-c", "printf '<%s>' "+command).CombinedOutput()
		if want := "<" + key + "><token-bucket 5/1m burst 5>"; err != nil || string(out) != want {
			t.Errorf("%q: %s is read as %q, %v", key, command, out, err)
		}
	}
}

func TestSpan(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0 s", 0: "0 s", 1: "1 ms", 999*time.Millisecond + 1: "1 s", time.Second: "1 s",
		time.Second + 1: "2 s", 59 * time.Second: "59 s", 59*time.Second + 1: "1 min", 65 * time.Second: "1 min 5 s",
		59*time.Minute + 59*time.Second: "59 min 59 s", 59*time.Minute + 59*time.Second + 1: "1 h",
		6*time.Hour + 50*time.Minute + 1: "6 h 51 min", 47*time.Hour + 59*time.Minute + 1: "2 d",
		51 * time.Hour: "2 d 3 h",
	} {
		if got := service.Span(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}
