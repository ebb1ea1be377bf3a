package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
)

// runCommand runs a command that has to exit with code, and returns its output.
func runCommand(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := runMain(t.Context(), args, nil, &out, &out); got != code {
		t.Fatalf("%q: exit %d, %s; want %d", args, got, out.String(), code)
	}
	return out.String()
}

// replaceFile replaces a file as an editor does, so that a server never reads half of it.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// limits returns the notations of a server's limits, by name.
func (s *server) limits(t *testing.T) map[string]string {
	t.Helper()
	res, err := http.Get(s.url + "/v1/limits")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var list api.Limits
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, l := range list.Limits {
		byName[l.Name] = l.Limit
	}
	return byName
}

// requestUntilOK repeats a request until the status is 200, and decodes the answer. On a busy machine a store may miss
// its deadline.
func (s *server) requestUntilOK(t *testing.T, method, path, body string, answer any) {
	t.Helper()
	s.waitUntil(t, method+" "+path+" is answered", func() bool {
		r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := json.NewDecoder(res.Body).Decode(answer); err != nil {
			t.Fatalf("status %d, %v", res.StatusCode, err)
		}
		return res.StatusCode == http.StatusOK
	})
}

// health returns the answer of /readyz, once it is 200.
func (s *server) health(t *testing.T) (h api.Health) {
	t.Helper()
	s.requestUntilOK(t, http.MethodGet, "/readyz", "", &h)
	return h
}

// TestServeReloadsTheConfigFile changes the config file of a server while it serves.
func TestServeReloadsTheConfigFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	replaceFile(t, file, "limits:\n  login: gcra 1/s\n")
	s := start(t, dir, "--config", file)
	hasLimit := func(name, notation string) func() bool {
		return func() bool { return s.limits(t)[name] == notation }
	}
	s.waitUntil(t, "the file is in force", hasLimit("login", "gcra 1/s burst 1"))
	replaceFile(t, file, "limits:\n  login: gcra 2/s\n  api: gcra 3/s\n")
	s.waitUntil(t, "the changed file is in force", hasLimit("api", "gcra 3/s burst 3"))
	s.waitUntil(t, "the change in the log", func() bool {
		return strings.Contains(s.out.String(), "~ login = gcra 2/s burst 2   (was gcra 1/s burst 1)")
	})
	// An invalid file changes nothing, and /readyz reports it.
	replaceFile(t, file, "limits:\n  login: gcra 2/s\n  api: gcra 0/s\n")
	s.waitUntil(t, "the error of the file in /readyz", func() bool {
		return strings.Contains(s.health(t).Config, "c.yaml:3:13: limits.api")
	})
	if got := s.limits(t); got["api"] != "gcra 3/s burst 3" || got["login"] != "gcra 2/s burst 2" {
		t.Errorf("after an invalid file: got %v", got)
	}
	// Neither an empty file nor a pipe changes anything: one would remove all rules, the other would block.
	replaceFile(t, file, "")
	s.waitUntil(t, "the empty file in /readyz", func() bool { return strings.Contains(s.health(t).Config, "is empty") })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "the pipe in /readyz", func() bool {
		return strings.Contains(s.health(t).Config, "is not a regular file")
	})
	if got := s.limits(t); got["api"] != "gcra 3/s burst 3" || got["login"] != "gcra 2/s burst 2" {
		t.Errorf("after an empty file and a pipe: got %v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "the missing file in /readyz", func() bool {
		return strings.Contains(s.health(t).Config, "no such file")
	})
	replaceFile(t, file, "limits:\n  api: gcra 4/s\n")
	s.waitUntil(t, "the corrected file is in force", hasLimit("api", "gcra 4/s burst 4"))
	s.waitUntil(t, "no error in /readyz", func() bool { return s.health(t).Config == "" })
	if got := s.limits(t); got["login"] != "gcra 2/s burst 2" {
		t.Errorf("a limit that was removed from the file: got %v, want it unchanged", got)
	}
	// SIGHUP reads the file again, and the server goes on.
	runCommand(t, exitOK, "limits", "set", "api", "gcra 9/s", "--store", "sqlite:"+filepath.Join(dir, "headgate.db"))
	s.waitUntil(t, "a change by the command is in force", hasLimit("api", "gcra 9/s burst 9"))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "the difference of the limits in the log", func() bool {
		return strings.Contains(s.out.String(), "limits were changed since the config file was applied")
	})
	if got := s.limits(t); got["api"] != "gcra 9/s burst 9" {
		t.Errorf("after SIGHUP: got %v, want the change by the command", got)
	}
	replaceFile(t, file, "limits:\n  api: gcra 5/s\n")
	s.waitUntil(t, "the undone change in the log", func() bool {
		return strings.Contains(s.out.String(), "undoes a change that was made otherwise") &&
			strings.Contains(s.out.String(), `was="gcra 9/s burst 9"`)
	})
	s.stop(t)
}

// TestReloadReplacesAllRules changes the rules of a server, and checks that none is replaced if one can never match.
func TestReloadReplacesAllRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	const limits = "limits:\n  api: gcra 1/s\n"
	replaceFile(t, file, limits+"rules:\n  - {name: old, path: /, limits: [{limit: api, key: ip}]}\n")
	s := start(t, dir, "--config", file)
	decidingRule := func(uri string) string {
		var e api.Explanation
		s.requestUntilOK(t, http.MethodPost, "/v1/explain", `{"method":"GET","uri":"`+uri+`","client":"192.0.2.1"}`, &e)
		return e.Rule
	}
	if got := decidingRule("/a"); got != "old" {
		t.Fatalf("rule %q decides, want old", got)
	}
	// A new rule may name a limit of the same file.
	replaceFile(t, file, limits+"  new: gcra 2/s\nrules:\n  - {name: a, path: /a, limits: [{limit: new, key: ip}]}\n"+
		"  - {name: b, path: /, limits: []}\n")
	s.waitUntil(t, "the new rules are in force", func() bool { return decidingRule("/a") == "a" })
	if d, status, err := s.take(http.DefaultClient, `{"limit":"new","key":"k"}`); err != nil || status != http.StatusOK {
		t.Errorf("a limit of the same file: status %d, %+v, %v, want 200", status, d, err)
	}
	if got := decidingRule("/x"); got != "b" {
		t.Errorf("rule %q decides, want b", got)
	}
	replaceFile(t, file, limits+"rules:\n  - {name: c, path: /, limits: []}\n  - {name: d, path: /a, limits: []}\n")
	s.waitUntil(t, "the error of the rules in /readyz", func() bool {
		return strings.Contains(s.health(t).Config, "c.yaml:5:5: rules.d: can never match")
	})
	if a, b := decidingRule("/a"), decidingRule("/x"); a != "a" || b != "b" {
		t.Errorf("after an invalid file rules %q and %q decide, want a and b", a, b)
	}
	// A rule that can never admit anything is reported, and the others are in force: one rule must not stop an upgrade.
	replaceFile(t, file, limits+"  few: fixed-window 3/1h\nrules:\n  - {name: e, path: /e, limits: [{limit: few, key: ip, cost: 4}]}\n"+
		"  - {name: f, path: /, limits: []}\n")
	s.waitUntil(t, "the rule that admits nothing in /readyz", func() bool {
		return strings.Contains(s.health(t).Config, "rules.e.few: no request can ever pass")
	})
	if got := decidingRule("/x"); got != "f" {
		t.Errorf("beside the rule that admits nothing rule %q decides, want f", got)
	}
	s.stop(t)
}

// TestOlderConfigFileIsNotApplied starts servers with an older and a newer file in several orders: the newer one stays.
func TestOlderConfigFileIsNotApplied(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	dir := t.TempDir()
	olderFile, newerFile := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml")
	replaceFile(t, olderFile, "store: "+url+"\nlimits:\n  login: gcra 1/s\n")
	replaceFile(t, newerFile, "store: "+url+"\nlimits:\n  login: gcra 2/s\n")
	startReady(t, dir, "--config", olderFile).stop(t)
	for _, order := range [][]string{
		{newerFile, olderFile}, {olderFile, newerFile}, {newerFile, newerFile}, {olderFile, olderFile},
	} {
		for _, file := range order {
			s := startReady(t, dir, "--config", file)
			if file == newerFile {
				s.waitUntil(t, "the newer file is in force",
					func() bool { return s.limits(t)["login"] == "gcra 2/s burst 2" })
			}
			const message = "a newer file is in force"
			reported := func() bool { return strings.Contains(s.health(t).Config, message) }
			if file == olderFile {
				s.waitUntil(t, "that the file is older", reported)
			} else if reported() {
				t.Errorf("/readyz reports %s as older", file)
			}
			if logged := strings.Contains(s.stop(t), message); logged != (file == olderFile) {
				t.Errorf("%s in the log as older: got %v", file, logged)
			}
		}
		if got := runCommand(t, exitOK, "limits", "list", "--store", url); !strings.Contains(got, "gcra 2/s burst 2") {
			t.Errorf("after %v: got %s, want gcra 2/s", order, got)
		}
	}
	replaceFile(t, olderFile, "store: "+url+"\nlimits:\n  login: fixed-window 1/day Nowhere/Else\n")
	if got := runCommand(t, exitError, "serve", "--config", olderFile); !strings.Contains(got, "Nowhere/Else") {
		t.Errorf("an invalid limit at the start: got %s", got)
	}
}

// TestCatalogChangeIsReadWithinTwoSeconds changes a limit through one of two Catalogs of a store, each time at another
// fraction of a second, and reads it through the other.
func TestCatalogChangeIsReadWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		var catalogs [2]*catalog.Catalog
		for i := range catalogs {
			c, err := catalog.Open(t.Context(), s, nil) // it polls as often as a server does
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			catalogs[i] = c
		}
		for n := range 20 {
			l, err := headgate.ParseNamed("login", fmt.Sprintf("gcra %d/s", 1000+n))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := catalogs[n%2].Set(t.Context(), catalog.By{}, catalog.Definition{Limit: l}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if got, err := catalogs[1-n%2].Get("login"); err != nil || got.String() != l.String() {
				t.Errorf("two seconds after change %d: got %v, %v, want %v", n, got, err, l)
			}
			time.Sleep(70 * time.Millisecond)
		}
	})
}

// TestLimitChangeReachesAllProcesses changes a limit again and again under load: from SQL, by the command on a host
// without a file, by a program, and by the files of two servers.
func TestLimitChangeReachesAllProcesses(t *testing.T) {
	t.Parallel()
	changes := tier.Pick(4, 12, 120)
	url := migrated.Postgres(t)
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}
	servers := make([]*server, len(files))
	for i, file := range files {
		replaceFile(t, file, "store: "+url+"\nlimits:\n  login: gcra 1000/s\n")
		servers[i] = startReady(t, dir, "--config", file)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	s, err := postgres.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	programCatalog, err := catalog.Open(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer programCatalog.Close()
	var load sync.WaitGroup
	var decisions atomic.Int64
	stop := make(chan struct{})
	for i := range 4 {
		load.Go(func() {
			client := &http.Client{}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				d, status, err := servers[i%2].take(client, fmt.Sprintf(`{"limit":"login","key":"k%d"}`, n%100))
				if err != nil || status != http.StatusOK || d.Limit != "login" {
					t.Errorf("status %d, %+v, %v", status, d, err)
					return
				}
				decisions.Add(1)
			}
		})
	}
	for n := 1; n <= changes; n++ {
		notation := fmt.Sprintf("gcra %d/s", 1000+n)
		want := fmt.Sprintf("%s burst %d", notation, 1000+n)
		switch n % 4 {
		case 0:
			if _, err := conn.Exec(t.Context(), `update headgate.limits set rule = $1 where name = 'login'`, notation); err != nil {
				t.Fatal(err)
			}
			want = notation // the row has the notation as it was written
		case 1:
			runCommand(t, exitOK, "limits", "set", "login", notation, "--store", url)
		case 2:
			l, err := headgate.ParseNamed("login", notation)
			if err != nil {
				t.Fatal(err)
			}
			d := catalog.Definition{Limit: l, Origin: "file"}
			if _, err := programCatalog.Set(t.Context(), catalog.By{}, d); err != nil {
				t.Fatal(err)
			}
		case 3:
			replaceFile(t, files[n/4%2], "store: "+url+"\nlimits:\n  login: "+notation+"\n")
			servers[n/4%2].waitUntil(t, "the file is applied", func() bool {
				var rule string
				err := conn.QueryRow(t.Context(), `select rule from headgate.limits where name = 'login'`).Scan(&rule)
				return err == nil && rule == want
			})
		}
		for _, hasChange := range []func() bool{
			func() bool { return servers[0].limits(t)["login"] == notation+fmt.Sprintf(" burst %d", 1000+n) },
			func() bool { return servers[1].limits(t)["login"] == notation+fmt.Sprintf(" burst %d", 1000+n) },
			func() bool {
				l, err := programCatalog.Get("login")
				return err == nil && l.String() == notation+fmt.Sprintf(" burst %d", 1000+n)
			},
			func() bool {
				var rule string
				err := conn.QueryRow(t.Context(), `select rule from headgate.limits where name = 'login'`).Scan(&rule)
				return err == nil && rule == want
			},
		} {
			servers[0].waitUntil(t, notation, hasChange)
		}
	}
	close(stop)
	load.Wait()
	t.Logf("%d changes, %d decisions meanwhile", changes, decisions.Load())
	var versions int
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.versions`).Scan(&versions); err != nil || versions != changes+1 {
		t.Errorf("got %d versions, %v; want %d: the first file, and one for each change", versions, err, changes+1)
	}
}
