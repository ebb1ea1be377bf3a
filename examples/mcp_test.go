package examples_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestMCPInGo runs the tests of the module examples/mcp.
func TestMCPInGo(t *testing.T) {
	tier.Engines(t)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "./...")
	cmd.Dir, cmd.Env = "mcp", append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMCPInTypeScript compiles the server, and calls its tool by the official client until a call is refused.
func TestMCPInTypeScript(t *testing.T) {
	tier.Engines(t)
	modules, node, dir := dbtest.NodeModules(t, "mcp"), dbtest.Program(t, "node", "nodejs"), t.TempDir()
	for _, name := range []string{"package.json", "server.mts", "call.mjs"} {
		text, err := os.ReadFile(filepath.Join("mcp", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	dbtest.Start(t, func() *exec.Cmd {
		return exec.Command(command.Path(t), "serve", "--store", "memory:", "--http", addr)
	}, func() error {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	})
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), node, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "HEADGATE_SERVER=http://"+addr)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	run("node_modules/typescript/bin/tsc", "--module", "nodenext", "--target", "es2022", "--strict", "--skipLibCheck",
		"--types", "node", "server.mts")
	const want = "false found tea\nfalse found tea\n" +
		"true Rate limit: search allows 2 calls, 0 are left. Do not call it again before 60 s have passed.\n"
	if got := run("call.mjs", "server.mjs"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
