package examples_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// TestMCPInGo runs the tests of the module examples/mcp.
func TestMCPInGo(t *testing.T) {
	tier.Engines(t)
	runProgram(t, "mcp", ownModule, "go", "test", "-count=1", "./...")
}

// TestMCPInTypeScript compiles the server, and calls its tool by the official client until a call is refused.
func TestMCPInTypeScript(t *testing.T) {
	tier.Engines(t)
	node, dir := dbtest.Program(t, "node", "nodejs"), copyWithModules(t, "mcp")
	addr := fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
	startProgram(t, dir, "http://"+addr+"/readyz", nil, command.Path(t), "serve", "--store", "memory:", "--http", addr)
	runProgram(t, dir, nil, node, "node_modules/typescript/bin/tsc", "--module", "nodenext", "--target", "es2022", "--strict",
		"--skipLibCheck", "--types", "node", "server.mts")
	const want = "false found tea\nfalse found tea\n" +
		"true Rate limit: search allows 2 calls, 0 are left. Do not call it again before 60 s have passed.\n"
	if got := runProgram(t, dir, []string{"HEADGATE_SERVER=http://" + addr}, node, "call.mjs", "server.mjs"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
