package clients

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// maxLines bounds the lines of a client, since people copy it into programs and read it.
const maxLines = 260

func TestClientsAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"python/headgate.py", "python/headgate_asyncio.py", "typescript/headgate.ts"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines {
			t.Errorf("%s: got %d lines, want at most %d", name, n, maxLines)
		}
	}
}

// TestPython runs the tests of headgate.py and headgate_asyncio.py against servers.
func TestPython(t *testing.T) {
	t.Parallel()
	python := dbtest.Program(t, "python3", "python3")
	run(t, "python", python, "test_headgate.py", serve(t, readVectors(t)), "../"+vectorsFile)
	run(t, "python", python, "test_headgate_asyncio.py", serve(t, readVectors(t)))
}

// TestTypeScript checks the types of headgate.ts, and runs its tests against a server.
func TestTypeScript(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	node := dbtest.Program(t, "node", "nodejs")
	modules := dbtest.NodeModules(t, "typescript")
	dir := t.TempDir()
	run(t, "typescript", node, filepath.Join(modules, "typescript/bin/tsc"), "-p", ".", "--outDir", dir)
	if err := os.Rename(filepath.Join(dir, "headgate.js"), filepath.Join(dir, "headgate.mjs")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("typescript/test_headgate.mjs")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "test_headgate.mjs"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Abs(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, node, "test_headgate.mjs", serve(t, readVectors(t)), file)
}

// run runs a program in a folder, and fails the test unless it exits with 0.
func run(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
}
