package examples_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// ownModule is the environment of the command go in an example that is a module of its own.
var ownModule = []string{"GOFLAGS=", "GOWORK=off"}

// copyWithModules returns a copy of the folder of an example, with the packages of npm.
func copyWithModules(t *testing.T, example string) string {
	t.Helper()
	modules, dir := dbtest.NodeModules(t, example), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(example)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// readyCheck returns a function that gets a URL, and returns an error unless the status of the answer is below 500.
func readyCheck(url string) func() error {
	return func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		if resp.StatusCode >= http.StatusInternalServerError {
			err = errors.New(resp.Status)
		}
		return errors.Join(err, resp.Body.Close())
	}
}

// startProgram starts a program in a folder, until the test ends, and returns once the URL answers.
func startProgram(t *testing.T, dir, url string, env []string, program string, args ...string) {
	t.Helper()
	dbtest.Start(t, func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
		return cmd
	}, readyCheck(url))
}

// runProgram runs a program, args[0], in a folder, and returns what it prints. Its failure ends the test.
func runProgram(t *testing.T, dir string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", args[0], err, out)
	}
	return string(out)
}
