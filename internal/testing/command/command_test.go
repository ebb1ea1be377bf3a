package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestPathNamesTheCommand(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), Path(t), "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "headgate ") {
		t.Errorf("%v: %s", err, out)
	}
}

func TestRootIsTheFolderOfTheModule(t *testing.T) {
	t.Parallel()
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "internal/testing/command")); err != nil {
		t.Error(err)
	}
}
