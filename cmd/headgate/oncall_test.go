package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestOnCallWithAServerOnly raises a limit for all keys, gives a key a plan, lists both and takes them back, through a
// server and without its database.
func TestOnCallWithAServerOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	write(t, file, "limits:\n  api: {limit: fixed-window 3/1d, description: of a customer}\nplans:\n  pro: {api: fixed-window 9/1d}\n")
	s := start(t, dir, "--config", file)
	ask := func(code int, want string, args ...string) {
		t.Helper()
		out := command(t, code, append(args, "--server", s.url)...)
		for line := range strings.Lines(want) {
			if !strings.Contains(out, strings.TrimSuffix(line, "\n")) {
				t.Errorf("%q says %s; want %q", args, out, line)
			}
		}
	}
	at := ", at " + s.url
	ask(exitOK, "api   fixed-window 3/1d  file  of a customer", "limits", "list")
	ask(exitOK, "lets       3 pass in each window of 1d\nchanged    version 1", "limits", "show", "api")
	ask(exitError, "unknown", "limits", "show", "nobody")
	ask(exitOK, "fixed-window 3/1d", "explain", "api")
	ask(exitOK, "fixed-window 3/1d", "explain", "fixed-window 3/1d") // which needs no server
	ask(exitError, "unknown", "explain", "nobody")
	ask(exitOK, "~ api = fixed-window 6/1d", "limits", "set", "api", "fixed-window 6/1d", "--dry-run")
	ask(exitOK, `~ api = fixed-window 6/1d; "of a customer"   (was fixed-window 3/1d`+"\nthe catalog has version 2 now"+at,
		"limits", "set", "api", "fixed-window 6/1d", "--reason", "a sale")
	ask(exitOK, "nothing to change", "limits", "set", "api", "fixed-window 6/1d")
	ask(exitError, "period", "limits", "set", "api", "fixed-window 6/")
	ask(exitOK, "remaining 0", "take", "api", "acme", "--cost", "6")
	ask(exitRefused, "", "take", "api", "acme")

	ask(exitOK, "pro   api    fixed-window 9/1d  file", "plan", "list")
	ask(exitOK, `+ plan of "acme" = pro`+"\nthe catalog has version 3 now"+at, "plan", "set", "acme", "pro", "--reason", "trial")
	ask(exitOK, "remaining 0", "take", "api", "acme", "--cost", "3")
	ask(exitError, "gold", "plan", "set", "acme", "gold")
	ask(exitOK, `- plan of "acme"`, "plan", "unset", "acme")
	ask(exitOK, "+ override api of \"acme\" = fixed-window 20/1d\nthe catalog has version 5 now"+at,
		"override", "acme", "api", "fixed-window 20/1d")

	ask(exitOK, ": a sale\n  ~ api = fixed-window 6/1d", "limits", "history", "api")
	ask(exitOK, "~ api = fixed-window 3/1d", "limits", "rollback", "1", "api", "--dry-run")
	ask(exitOK, "the catalog has version 6 now"+at, "limits", "rollback", "1", "api", "--yes",
		"--reason", "the sale is over")
	if got := s.limits(t)["api"]; got != "fixed-window 3/1d" {
		t.Errorf("after the rollback api is %q", got)
	}
	s.stop(t)
}
