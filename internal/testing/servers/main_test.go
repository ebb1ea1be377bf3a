package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestRunPassesServersOn checks that run passes the servers of the environment on, and returns the command's status.
func TestRunPassesServersOn(t *testing.T) {
	envFile := filepath.Join(t.TempDir(), "said")
	dsns := map[string]string{
		dbtest.PostgresDSNEnv: "postgres://a", dbtest.MySQLDSNEnv: "mysql://b", dbtest.RedisDSNEnv: "redis://c",
	}
	for env, dsn := range dsns {
		t.Setenv(env, dsn)
	}
	code, err := run([]string{"sh", "-c", "env >" + envFile + "; exit 7"})
	if code != 7 || err != nil {
		t.Errorf("got status %d, error %v; want 7, nil", code, err)
	}
	text, err := os.ReadFile(envFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for env, dsn := range dsns {
		if want := env + "=" + dsn; !slices.Contains(lines, want) {
			t.Errorf("the environment of the command has no %s", want)
		}
	}
	if code, err := run([]string{"true"}); code != 0 || err != nil {
		t.Errorf("true: got status %d, error %v; want 0, nil", code, err)
	}
	if code, err := run([]string{"no-such-command"}); code != 1 || err == nil {
		t.Errorf("no such command: got status %d, error %v; want 1 and an error", code, err)
	}
}
