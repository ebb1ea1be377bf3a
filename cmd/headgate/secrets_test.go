package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/migrated"
)

// secretURLs have a password, Zq7..w9X, in every place where people write one. Nothing listens at any of them.
var secretURLs = []string{
	"postgres://u:Zq7w9X@127.0.0.1:1/db",
	"postgres://127.0.0.1:1/db?user=u&password=Zq7w9X",
	"postgres://127.0.0.1:1/db?user=u&password=Zq7@w9X",
	"postgres://127.0.0.1:1/db?password=Zq7&w9X",
	"postgres://127.0.0.1:1/db?password=Zq7%zzw9X",
	"postgres://127.0.0.1:1/db?sslmode=nope&password=Zq7@w9X",
	"postgres://127.0.0.1:1/db?sslmode=nope&password=Zq7w9X",
	"postgres:///db?host=/nonexistent&user=u&password=Zq7w9X",
	"postgres://u:Zq7w9X@%2Fnonexistent/db",
	"postgres://u:Zq7@w9X@127.0.0.1:1/db",
	"postgres://u:Zq7/w9X@127.0.0.1:1/db",
	"postgres://u:Zq7?w9X@127.0.0.1:1/db",
	"postgres://u:Zq7#w9X@127.0.0.1:1/db",
	"postgres://u:Zq7%zzw9X@127.0.0.1:1/db",
	"postgres://u:Zq7%40w9X@127.0.0.1:1/db",
	"postgres://u:Zq7w9X",
	"postgres:u:Zq7w9X@h/db",
	"postgrse://127.0.0.1:1/db?password=Zq7w9X",
	"host=127.0.0.1 port=1 user=u password=Zq7w9X",
	"host=127.0.0.1:1 user=u password=Zq7w9X",
	"root:Zq7w9X@tcp(127.0.0.1:3306)/app",
	"mysql://root:Zq7w9X@tcp(127.0.0.1:1)/app",
	"mysql://root:Zq7@w9X@127.0.0.1:1/app",
	"mysql://root:Zq7/w9X@127.0.0.1:1/app",
	"mysql://root:Zq7?w9X@127.0.0.1:1/app",
	"mysql://root:Zq7%zzw9X@127.0.0.1:1/app",
	"mysql://root:Zq7w9X",
	"mysql://127.0.0.1:1/app?password=Zq7w9X",
	"mysql://127.0.0.1:1/app?password=Zq7%zzw9X",
	"redsi://:Zq7@w9X@127.0.0.1:1/0",
	"redis://:Zq7@w9X@127.0.0.1:1/0",
	"redis://:Zq7/w9X@127.0.0.1:1/0",
	"redis://:Zq7?w9X@127.0.0.1:1/0",
	"redis://:Zq7#w9X@127.0.0.1:1/0",
	"redis://:Zq7%zzw9X@127.0.0.1:1/0",
	"redis://:Zq7w9X",
	"redis://127.0.0.1:1/0?password=Zq7w9X",
	"redis://127.0.0.1:1/0?password=Zq7&w9X",
	"rediss://:Zq7w9X@127.0.0.1:1/0?ca=none",
	"memory:Zq7w9X",
	"sqlite:no/such/folder/h.db?key=Zq7w9X",
	"Zq7w9X",
	":Zq7w9X@127.0.0.1:1",
}

// TestPasswordsAreNotPrinted gives each URL to six commands: as a flag, in a variable, and in a valid or broken file.
func TestPasswordsAreNotPrinted(t *testing.T) {
	dir := t.TempDir()
	for _, url := range secretURLs {
		file := filepath.Join(dir, "headgate.yaml")
		if err := os.WriteFile(file, fmt.Appendf(nil, "store: %q\n", url), 0o600); err != nil {
			t.Fatal(err)
		}
		broken := filepath.Join(dir, "broken.yaml")
		if err := os.WriteFile(broken, fmt.Appendf(nil, "%s: x\n", url), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, command := range [][]string{
			{"take", "token-bucket 5/s", "k"},
			{"list"},
			{"migrate"},
			{"bench", "--duration", "1ms"},
			{"run", "--limit", "token-bucket 5/s", "--key", "k", "--wait", "0s"},
			{"serve", "--http", "127.0.0.1:0", "--wait-store", "0"},
		} {
			programArgs := []string{}
			if command[0] == "run" {
				programArgs = []string{"--", "true"}
			}
			check := func(source string, extraArgs ...string) {
				var out bytes.Buffer
				args := append(append(append([]string{}, command...), extraArgs...), programArgs...)
				code := runMain(t.Context(), args, nil, &out, &out)
				if code == exitOK || code == exitRefused || out.Len() == 0 {
					t.Errorf("%s %s by %s: got code %d, %q; want an error", command[0], url, source, code, out.String())
				}
				if strings.Contains(out.String(), "Zq7") || strings.Contains(out.String(), "w9X") {
					t.Errorf("%s %s by %s prints the password: %q", command[0], url, source, out.String())
				}
			}
			check("flag", "--store", url)
			check("file", "--config", file)
			if strings.ContainsAny(url, ":@/=") { // other URLs look like any word
				check("broken file", "--config", broken)
			}
			t.Setenv(config.Store.Variable(), url)
			check("variable")
			os.Unsetenv(config.Store.Variable())
		}
	}
}

// TestMisplacedURLIsNotPrinted checks that errors do not repeat an unexpected argument that may have a password.
func TestMisplacedURLIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, url := range secretURLs {
		if !strings.ContainsAny(url, ":@/=") || strings.HasPrefix(url, "memory:") || strings.HasPrefix(url, "sqlite:") {
			continue // it looks like any word, or has no place for a password
		}
		for _, args := range [][]string{
			{url},
			{"--store", url},
			{"-store", url},
			{"-store=" + url},
			{"migrate", url},
			{"migrate", "-store=" + url},
			{"serve", url},
			{"serve", "-store=" + url},
			{"schema", url},
			{"list", url, "--store", "memory:"},
			{"list", "k", url},
			{"bench", url},
			{"take", url, "k", "--store", "memory:"},
			{"take", "token-bucket 5/s", "k", url},
			{"explain", url},
			{"run", url},
			{"run", "--limit", "token-bucket 5/s", "--key", "k", "--store", "memory:", url},
			{"licenses", url},
			{"replay", "--limit=" + url, "--key", "ip", "-"},
			{"take", "token-bucket 5/s", "k", "--wait=" + url},
		} {
			var out bytes.Buffer
			code := runMain(t.Context(), args, strings.NewReader(""), &out, &out)
			if code == exitOK || strings.Contains(out.String(), "Zq7") || strings.Contains(out.String(), "w9X") {
				t.Errorf("%q: got code %d, %q, want an error without the password", args, code, out.String())
			}
		}
	}
}

// TestServerFlagErrorsHideThePassword checks the errors of take for a --server that has a password.
func TestServerFlagErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	noHeadgate := httptest.NewServer(http.NotFoundHandler())
	defer noHeadgate.Close()
	_, addr, _ := strings.Cut(noHeadgate.URL, "://")
	for _, url := range []string{
		"http://u:Zq7w9X@127.0.0.1:1", "http://u:Zq7@w9X@127.0.0.1:1", "http://u:Zq7/w9X@127.0.0.1:1",
		"http://u:Zq7%zzw9X@127.0.0.1:1",
		"http://127.0.0.1:1/?password=Zq7w9X", "ftp://u:Zq7w9X@127.0.0.1:1", "u:Zq7w9X@127.0.0.1:1",
		"http://u:Zq7w9X@" + addr,
	} {
		var out bytes.Buffer
		code := runMain(t.Context(), []string{"take", "token-bucket 5/s", "k", "--server", url}, nil, &out, &out)
		if code != exitError || strings.Contains(out.String(), "Zq7") || strings.Contains(out.String(), "w9X") {
			t.Errorf("%s: got code %d, %q, want an error without the password", url, code, out.String())
		}
	}
}

// TestAServerPrintsNoPassword starts servers whose databases accept any password, and checks what they print.
func TestAServerPrintsNoPassword(t *testing.T) {
	withCredentials := func(url, user string) string {
		_, rest, _ := strings.Cut(url, "://")
		if i := strings.LastIndex(rest, "@"); i >= 0 {
			rest = rest[i+1:]
		}
		scheme, _, _ := strings.Cut(url, "://")
		return scheme + "://" + user + ":Zq7@w9X@" + rest
	}
	postgres := migrated.Postgres(t)
	_, place, _ := strings.Cut(postgres, "@")
	optionURL := "postgres://" + place + "?user=headgate&password=Zq7w9X"
	for url, wantText := range map[string]string{
		withCredentials(postgres, "headgate"):       "state in postgres://" + place + "\n",
		optionURL:                                   "state in postgres://" + place + "\n",
		withCredentials(dbtest.Redis(t), "default"): "state in redis://127.0.0.1:",
	} {
		s := startReady(t, t.TempDir(), "--store", url)
		if _, status, err := s.take(http.DefaultClient, `{"limit":"token-bucket 5/s","key":"k"}`); err != nil ||
			status != 200 {
			t.Errorf("%s: got status %d, %v, want 200", url, status, err)
		}
		output := s.stop(t)
		if strings.Contains(output, "Zq7") || strings.Contains(output, "w9X") || !strings.Contains(output, wantText) {
			t.Errorf("%s: the server said %q; want %q and no password", url, output, wantText)
		}
	}
}
