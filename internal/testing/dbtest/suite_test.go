package dbtest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestDebianMirrorReadsTheSourcesOfTheMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		file, text, want string
	}{
		"a list": {
			"sources.list", "deb http://mirror.example/debian bookworm main\n",
			"http://mirror.example/debian",
		},
		"options": {
			"sources.list", "deb [signed-by=/k.gpg] https://mirror.example/debian/ bookworm main\n",
			"https://mirror.example/debian/",
		},
		"fields": {
			"sources.list.d/debian.sources",
			"Types: deb\n# http://old.example/debian\nURIs: http://mirror.example/debian\nSuites: bookworm\n",
			"http://mirror.example/debian",
		},
		"a comment": {"sources.list", "# deb http://mirror.example/debian bookworm main\n", ""},
		"others": {
			"sources.list.d/x.list",
			"deb http://mirror.example/debian-security bookworm-security main\ndeb http://other.example/apt x main\n",
			"",
		},
	} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "sources.list.d"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := func() (mirror string, err error) {
			defer returnFailure(&err)
			return debianMirror(dir), nil
		}()
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

// TestAptUpdateFailsWithoutAMirror checks an option: by default, an apt-get update that reaches no mirror succeeds.
func TestAptUpdateFailsWithoutAMirror(t *testing.T) {
	t.Parallel()
	apt := newApt(t.TempDir(), t.TempDir(), "http://127.0.0.1:1/debian", "sid")
	err := func() (err error) {
		defer returnFailure(&err)
		apt(t.Context(), "update")
		return nil
	}()
	if t.Log(err); err == nil {
		t.Error("got no error from an unreachable mirror")
	}
}
