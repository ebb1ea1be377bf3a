package doctest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// goOfFolder is a command that compiles the files of the page.
var goOfFolder = regexp.MustCompile(`(?m)^go (run|test|build)\b`)

// goEnv is what a session needs whose page makes a module: the caches of this user, whose home the session does not
// have, and the project's folder.
func goEnv(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output()
	dirs := strings.Fields(string(out))
	if err != nil || len(dirs) != 2 {
		t.Fatalf("go env: %q, %v", out, err)
	}
	return []string{"GOCACHE=" + dirs[0], "GOMODCACHE=" + dirs[1], "HEADGATE_DOC_ROOT=" + absolute(root)}
}
