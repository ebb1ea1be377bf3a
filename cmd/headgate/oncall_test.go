package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCatalogCommandsThroughAServer raises a limit, gives a key a plan and an override, takes the plan away, and rolls
// the limit back, through a server and without its database.
func TestCatalogCommandsThroughAServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	replaceFile(t, file, "limits:\n  api: {limit: fixed-window 3/1d, description: of a customer}\nplans:\n  pro: {api: fixed-window 9/1d}\n")
	s := start(t, dir, "--config", file)
	run := func(code int, wantLines string, args ...string) {
		t.Helper()
		out := runCommand(t, code, append(args, "--server", s.url)...)
		for line := range strings.Lines(wantLines) {
			if !strings.Contains(out, strings.TrimSuffix(line, "\n")) {
				t.Errorf("%q: got %s; want %q", args, out, line)
			}
		}
	}
	place := ", at " + s.url
	run(exitOK, "api   fixed-window 3/1d  file  of a customer", "limits", "list")
	run(exitOK, "lets       3 pass in each window of 1d\nchanged    version 1", "limits", "show", "api")
	run(exitError, "unknown", "limits", "show", "nobody")
	run(exitOK, "fixed-window 3/1d", "explain", "api")
	run(exitOK, "fixed-window 3/1d", "explain", "fixed-window 3/1d") // which needs no server
	run(exitError, "unknown", "explain", "nobody")
	run(exitOK, "~ api = fixed-window 6/1d", "limits", "set", "api", "fixed-window 6/1d", "--dry-run")
	run(exitOK, `~ api = fixed-window 6/1d; "of a customer"   (was fixed-window 3/1d`+"\nthe catalog has version 2 now"+place,
		"limits", "set", "api", "fixed-window 6/1d", "--reason", "a sale")
	run(exitOK, "nothing to change", "limits", "set", "api", "fixed-window 6/1d")
	run(exitError, "period", "limits", "set", "api", "fixed-window 6/")
	run(exitOK, "remaining 0", "take", "api", "acme", "--cost", "6")
	run(exitRefused, "", "take", "api", "acme")

	run(exitOK, "pro   api    fixed-window 9/1d  file", "plan", "list")
	run(exitOK, `+ plan of "acme" = pro`+"\nthe catalog has version 3 now"+place, "plan", "set", "acme", "pro", "--reason", "trial")
	run(exitOK, "remaining 0", "take", "api", "acme", "--cost", "3")
	run(exitError, "gold", "plan", "set", "acme", "gold")
	run(exitOK, `- plan of "acme"`, "plan", "unset", "acme")
	run(exitOK, "+ override api of \"acme\" = fixed-window 20/1d\nthe catalog has version 5 now"+place,
		"override", "acme", "api", "fixed-window 20/1d")

	run(exitOK, ": a sale\n  ~ api = fixed-window 6/1d", "limits", "history", "api")
	run(exitOK, "~ api = fixed-window 3/1d", "limits", "rollback", "1", "api", "--dry-run")
	run(exitOK, "the catalog has version 6 now"+place, "limits", "rollback", "1", "api", "--yes",
		"--reason", "the sale is over")
	if got := s.limits(t)["api"]; got != "fixed-window 3/1d" {
		t.Errorf("after the rollback api is %q, want fixed-window 3/1d", got)
	}
	s.stop(t)
}
