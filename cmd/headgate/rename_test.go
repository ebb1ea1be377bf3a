package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLimitsAreRenamedByTheCommand renames a limit in a store, by a file and at a server.
func TestLimitsAreRenamedByTheCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, file := "sqlite:"+filepath.Join(dir, "headgate.db"), filepath.Join(dir, "headgate.yaml")
	replaceFile(t, file, "limits:\n  signin: {limit: 5/1d, renamed_from: login}\n")
	keys := filepath.Join(dir, "keys.jsonl")
	replaceFile(t, keys, `{"limit":"signin","key":"bob","used":1,"capacity":5,"at":1796046217719506}`)
	for _, step := range []struct{ args, want string }{
		{"migrate", ""},
		{"limits set login 5/1d", "+ login = "},
		{"take login alice", ""},
		{"limits apply --dry-run -f " + file, "+ signin = renamed from login\n"},
		{"limits rename login signin --dry-run", "+ signin = renamed from login\nkeys are kept as login; programs without the catalog have to go on to say login\n"},
		{"limits rename login signin", "the catalog has version 2 now"},
		{"limits list", "signin (was login)  token-bucket 5/1d burst 5"},
		{"limits list -o json", `"renamed_to":"signin"`},
		{"limits apply -y -f " + file, "~ signin = renamed from login   (was renamed from login; set by hand)"},
		{"take signin alice", ""},
		{"inspect alice signin", "used"},
		{"limits show login", "\nrenamed to signin\n"},
		{"override alice signin 9/1d", "+ override login"},
		{"override --limit signin", "alice"},
		{"override alice signin", "alice"},
		{"override --limit login", "alice"},
		{"__complete inspect --store " + store + " alice s", "signin\n"},
		{"list signin --prefix ali", "alice"},
		{"import " + keys, "imported 1 of 1 keys"},
		{"limits history login", "+ signin = renamed from login"},
		{"limits rename signin entry", "keys are kept as login"},
		{"limits remove entry -y", "the catalog has version"},
	} {
		args := strings.Fields(step.args)
		if args[0] != "__complete" {
			args = append(args, "--store", store)
		}
		if got := runCommand(t, 0, args...); !strings.Contains(got, step.want) {
			t.Errorf("%s: got %s, want %s", step.args, got, step.want)
		}
	}
	runCommand(t, 2, "take", "login", "alice", "--store", store)
	s := startReady(t, dir, "--config", file, "--store", "memory:")
	runCommand(t, 0, "override", "alice", "signin", "9/1d", "--server", s.url)
	for _, args := range []string{"override --limit signin", "override alice signin", "limits show signin"} {
		got := runCommand(t, 0, append(strings.Fields(args), "--server", s.url)...)
		if !strings.Contains(got, "alice") && !strings.Contains(got, "renamed to signin") {
			t.Errorf("%s at a server: got %s", args, got)
		}
	}
	if got := runCommand(t, 0, "limits", "rename", "login", "entry", "--server", s.url); !strings.Contains(got, "+ entry = renamed from login\n") {
		t.Errorf("at a server: got %s", got)
	}
}
