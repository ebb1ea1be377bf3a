package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is the id of a user who may write only to files of its own.
const nobody = 65534

// TestDefaultStoreIsInAWritableFolder runs the command as a user who can write only to some folders, and checks where
// the store is made.
func TestDefaultStoreIsInAWritableFolder(t *testing.T) {
	t.Parallel()
	builtPath, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "headgate-state-") // others may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "locked"), 0o755); os.RemoveAll(root) })
	path := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	bin := path("headgate")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.Chmod(root, 0o755))
	// cp writes the file. If this process wrote it, a child of another test could inherit the open file, and then Linux
	// does not execute it.
	check(exec.Command("cp", builtPath, bin).Run())
	for _, folder := range []string{"home", "state", "given", "open", "locked"} {
		check(os.Mkdir(path(folder), 0o755))
		if os.Getuid() == 0 {
			check(os.Chown(path(folder), nobody, nobody))
		}
	}
	check(os.Chmod(path("locked"), 0o555))
	take := func(folder string, env ...string) ([]byte, error) {
		cmd := exec.Command(bin, "take", "token-bucket 5/1h", "alice")
		cmd.Dir = path(folder)
		cmd.Env = append([]string{"HOME=" + path("home"), "PATH=" + os.Getenv("PATH")}, env...)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return cmd.CombinedOutput()
	}
	for _, tt := range []struct {
		name, folder string
		env          []string
		wantFolder   string // empty: an error
		wantText     string
	}{
		{"a writable folder", "open", nil, path("open"), ", for this folder; --store"},
		{"a locked folder, with XDG_STATE_HOME", "locked", []string{"XDG_STATE_HOME=" + path("state")}, path("state", "headgate"), "; --store"},
		{"a locked folder, with HOME", "locked", nil, path("home", ".local", "state", "headgate"), "; --store"},
		{"a locked folder, with a relative XDG_STATE_HOME", "locked", []string{"XDG_STATE_HOME=state"}, path("home", ".local", "state", "headgate"), ""},
		{"a writable folder, with STATE_DIRECTORY", "open", []string{"STATE_DIRECTORY=" + path("given") + ":/x"}, path("given"), "; --store"},
		{"no writable folder", "locked", []string{"HOME=/nonexistent"}, "", "headgate.db"},
	} {
		out, err := take(tt.folder, tt.env...)
		if tt.wantFolder == "" {
			if err == nil || !strings.Contains(string(out), tt.wantText) {
				t.Errorf("%s: got %v, %s, want an error", tt.name, err, out)
			}
			continue
		}
		file := filepath.Join(tt.wantFolder, "headgate.db")
		if _, statErr := os.Stat(file); err != nil || statErr != nil {
			t.Errorf("%s: got %v, %v: %s, want a new file", tt.name, err, statErr, out)
		}
		if tt.wantText != "" && !strings.Contains(string(out), "made a new store, "+file+tt.wantText) {
			t.Errorf("%s: got %q, want the path of the new store", tt.name, out)
		}
	}

	// An existing file is used even if it is read-only: another file would reset all limits.
	check(os.Chmod(path("locked"), 0o755))
	check(os.WriteFile(path("locked", "headgate.db"), nil, 0o444))
	check(os.Chmod(path("locked"), 0o555))
	if out, err := take("locked", "XDG_STATE_HOME="+path("state")); err == nil {
		t.Errorf("a read-only file in the folder: got %s, want an error", out)
	}
}
