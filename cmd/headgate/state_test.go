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

// TestTheDefaultStoreIsWhereItCanBeWritten runs the command as a user who can write to some folders only.
func TestTheDefaultStoreIsWhereItCanBeWritten(t *testing.T) {
	t.Parallel()
	built, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "headgate-state-") // others may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(root, "locked"), 0o755); os.RemoveAll(root) })
	at := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
	bin := at("headgate")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Chmod(root, 0o755))
	// cp writes the file: a file that this process has open for writing may be inherited by a program that another test
	// starts, and cannot be executed until the exec of that program.
	must(exec.Command("cp", built, bin).Run())
	for _, folder := range []string{"home", "state", "given", "open", "locked"} {
		must(os.Mkdir(at(folder), 0o755))
		if os.Getuid() == 0 {
			must(os.Chown(at(folder), nobody, nobody))
		}
	}
	must(os.Chmod(at("locked"), 0o555))
	take := func(folder string, env ...string) ([]byte, error) {
		cmd := exec.Command(bin, "take", "token-bucket 5/1h", "alice")
		cmd.Dir = at(folder)
		cmd.Env = append([]string{"HOME=" + at("home"), "PATH=" + os.Getenv("PATH")}, env...)
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		return cmd.CombinedOutput()
	}
	for _, tt := range []struct {
		about, folder string
		env           []string
		want          string
		says          string
	}{
		{"it can be written", "open", nil, at("open"), ", for this folder; --store"},
		{"it cannot, and the user has a folder for state", "locked", []string{"XDG_STATE_HOME=" + at("state")}, at("state", "headgate"), "; --store"},
		{"it cannot, and the user has a home", "locked", nil, at("home", ".local", "state", "headgate"), "; --store"},
		{"a path that is not absolute does not count", "locked", []string{"XDG_STATE_HOME=state"}, at("home", ".local", "state", "headgate"), ""},
		{"the service manager has given one", "open", []string{"STATE_DIRECTORY=" + at("given") + ":/x"}, at("given"), "; --store"},
		{"there is none", "locked", []string{"HOME=/nonexistent"}, "", "headgate.db"},
	} {
		out, err := take(tt.folder, tt.env...)
		if tt.want == "" {
			if err == nil || !strings.Contains(string(out), tt.says) {
				t.Errorf("%s: %v, %s", tt.about, err, out)
			}
			continue
		}
		file := filepath.Join(tt.want, "headgate.db")
		if _, missing := os.Stat(file); err != nil || missing != nil {
			t.Errorf("%s: %v, %v: %s", tt.about, err, missing, out)
		}
		if tt.says != "" && !strings.Contains(string(out), "made a new store, "+file+tt.says) {
			t.Errorf("%s: it says %q", tt.about, out)
		}
	}

	// An existing file is used even if it is read-only: another file would reset all limits.
	must(os.Chmod(at("locked"), 0o755))
	must(os.WriteFile(at("locked", "headgate.db"), nil, 0o444))
	must(os.Chmod(at("locked"), 0o555))
	if out, err := take("locked", "XDG_STATE_HOME="+at("state")); err == nil {
		t.Errorf("a file that cannot be written is passed over: %s", out)
	}
}
