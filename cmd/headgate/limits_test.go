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

// command runs a command that has to exit with code, and returns its output.
func command(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if got := runMain(t.Context(), args, nil, &out, &out); got != code {
		t.Fatalf("%q: exit %d, %s; want %d", args, got, out.String(), code)
	}
	return out.String()
}

// write replaces a file as an editor does, so that a server never reads half of it.
func write(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path+".new", []byte(text), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// limits returns the limits of a server, by name.
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

// ask repeats a request until the status is 200, and decodes the answer: on a busy machine a store may be late.
func (s *server) ask(t *testing.T, method, path, body string, answer any) {
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

func (s *server) health(t *testing.T) (h api.Health) {
	t.Helper()
	s.ask(t, http.MethodGet, "/readyz", "", &h)
	return h
}

// TestServeFollowsItsFile changes the config file of a server while it serves.
func TestServeFollowsItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	write(t, file, "limits:\n  login: gcra 1/s\n")
	s := start(t, dir, "--config", file)
	is := func(name, notation string) func() bool {
		return func() bool { return s.limits(t)[name] == notation }
	}
	s.waitUntil(t, "the file is in force", is("login", "gcra 1/s burst 1"))
	write(t, file, "limits:\n  login: gcra 2/s\n  api: gcra 3/s\n")
	s.waitUntil(t, "the file that was changed is in force", is("api", "gcra 3/s burst 3"))

	s.waitUntil(t, "what was changed is told", func() bool {
		return strings.Contains(s.out.String(), "~ login = gcra 2/s burst 2   (was gcra 1/s burst 1)")
	})

	// An invalid file changes nothing, and /readyz reports it.
	write(t, file, "limits:\n  login: gcra 2/s\n  api: gcra 0/s\n")
	s.waitUntil(t, "what is wrong is told", func() bool {
		return strings.Contains(s.health(t).Config, "c.yaml:3:13: limits.api")
	})
	if got := s.limits(t); got["api"] != "gcra 3/s burst 3" || got["login"] != "gcra 2/s burst 2" {
		t.Errorf("after a file with a mistake: %v", got)
	}
	// Neither an empty file nor a pipe changes anything: one would remove all rules, the other would block.
	write(t, file, "")
	s.waitUntil(t, "that it is empty is told", func() bool { return strings.Contains(s.health(t).Config, "is empty") })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "that it is a pipe is told", func() bool {
		return strings.Contains(s.health(t).Config, "is not a regular file")
	})
	if got := s.limits(t); got["api"] != "gcra 3/s burst 3" || got["login"] != "gcra 2/s burst 2" {
		t.Errorf("after an empty file and a pipe: %v", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "that it is gone is told", func() bool {
		return strings.Contains(s.health(t).Config, "no such file")
	})
	write(t, file, "limits:\n  api: gcra 4/s\n")
	s.waitUntil(t, "the file that was put right is in force", is("api", "gcra 4/s burst 4"))
	s.waitUntil(t, "nothing is wrong", func() bool { return s.health(t).Config == "" })
	if got := s.limits(t); got["login"] != "gcra 2/s burst 2" {
		t.Errorf("a limit that the file has no more: %v", got)
	}

	// SIGHUP reads the file again, and the server goes on.
	command(t, exitOK, "limits", "set", "api", "gcra 9/s", "--store", "sqlite:"+filepath.Join(dir, "headgate.db"))
	s.waitUntil(t, "a change by the command is in force", is("api", "gcra 9/s burst 9"))
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.waitUntil(t, "it says that the limits differ", func() bool {
		return strings.Contains(s.out.String(), "limits were changed since the config file was applied")
	})
	if got := s.limits(t); got["api"] != "gcra 9/s burst 9" {
		t.Errorf("SIGHUP has undone a change: %v", got)
	}
	write(t, file, "limits:\n  api: gcra 5/s\n")
	s.waitUntil(t, "that the file has undone a change by hand", func() bool {
		return strings.Contains(s.out.String(), "undoes a change that was made otherwise") &&
			strings.Contains(s.out.String(), `was="gcra 9/s burst 9"`)
	})
	s.stop(t)
}

// TestRulesAreReplacedWithTheFile changes the rules of a server: all of them, or none if one is wrong.
func TestRulesAreReplacedWithTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "c.yaml")
	const limits = "limits:\n  api: gcra 1/s\n"
	write(t, file, limits+"rules:\n  - {name: old, path: /, limits: [{limit: api, key: ip}]}\n")
	s := start(t, dir, "--config", file)
	decides := func(uri string) string {
		var e api.Explanation
		s.ask(t, http.MethodPost, "/v1/explain", `{"method":"GET","uri":"`+uri+`","client":"192.0.2.1"}`, &e)
		return e.Rule
	}
	if got := decides("/a"); got != "old" {
		t.Fatalf("rule %q decides", got)
	}
	// A new rule may name a limit of the same file.
	write(t, file, limits+"  new: gcra 2/s\nrules:\n  - {name: a, path: /a, limits: [{limit: new, key: ip}]}\n"+
		"  - {name: b, path: /, limits: []}\n")
	s.waitUntil(t, "the new rules are in force", func() bool { return decides("/a") == "a" })
	if d, status, err := s.take(http.DefaultClient, `{"limit":"new","key":"k"}`); err != nil || status != http.StatusOK {
		t.Errorf("a limit that came with the rules: status %d, %+v, %v", status, d, err)
	}
	if got := decides("/x"); got != "b" {
		t.Errorf("rule %q decides", got)
	}
	write(t, file, limits+"rules:\n  - {name: c, path: /, limits: []}\n  - {name: d, path: /a, limits: []}\n")
	s.waitUntil(t, "what is wrong is told", func() bool {
		return strings.Contains(s.health(t).Config, "c.yaml:5:5: rules.d: can never match")
	})
	if a, b := decides("/a"), decides("/x"); a != "a" || b != "b" {
		t.Errorf("after a file with a mistake rules %q and %q decide", a, b)
	}
	// A rule that can never admit anything is reported, and the others are in force: one rule must not stop an upgrade.
	write(t, file, limits+"  few: fixed-window 3/1h\nrules:\n  - {name: e, path: /e, limits: [{limit: few, key: ip, cost: 4}]}\n"+
		"  - {name: f, path: /, limits: []}\n")
	s.waitUntil(t, "what can never pass is told", func() bool {
		return strings.Contains(s.health(t).Config, "rules.e.few: no request can ever pass")
	})
	if got := decides("/x"); got != "f" {
		t.Errorf("beside what can never pass rule %q decides", got)
	}
	s.stop(t)
}

// TestAnOldFileUndoesNothing restarts two servers with an old and a new file, in both orders.
func TestAnOldFileUndoesNothing(t *testing.T) {
	t.Parallel()
	url := migrated.Postgres(t)
	dir := t.TempDir()
	older, newer := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "new.yaml")
	write(t, older, "store: "+url+"\nlimits:\n  login: gcra 1/s\n")
	write(t, newer, "store: "+url+"\nlimits:\n  login: gcra 2/s\n")
	startReady(t, dir, "--config", older).stop(t)
	for _, order := range [][]string{{newer, older}, {older, newer}, {newer, newer}, {older, older}} {
		for _, file := range order {
			s := startReady(t, dir, "--config", file)
			if file == newer {
				s.waitUntil(t, "the newer file is in force",
					func() bool { return s.limits(t)["login"] == "gcra 2/s burst 2" })
			}
			const old = "a newer file is in force"
			reported := func() bool { return strings.Contains(s.health(t).Config, old) }
			if file == older {
				s.waitUntil(t, "that the file is older", reported)
			} else if reported() {
				t.Errorf("%s is told to be older", file)
			}
			if logged := strings.Contains(s.stop(t), old); logged != (file == older) {
				t.Errorf("%s is older in the log: %v", file, logged)
			}
		}
		if got := command(t, exitOK, "limits", "list", "--store", url); !strings.Contains(got, "gcra 2/s burst 2") {
			t.Errorf("after %v: %s", order, got)
		}
	}
	write(t, older, "store: "+url+"\nlimits:\n  login: fixed-window 1/day Nowhere/Else\n")
	if got := command(t, exitError, "serve", "--config", older); !strings.Contains(got, "Nowhere/Else") {
		t.Errorf("a limit that is wrong at the start: %s", got)
	}
}

// TestAllFeelAChangeWithinTwoSeconds changes a limit in one process, each time at another fraction of a second, and
// looks it up in another process.
func TestAllFeelAChangeWithinTwoSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(nil)
		var both [2]*catalog.Catalog
		for i := range both {
			c, err := catalog.Open(t.Context(), s, nil) // it polls as often as a server does
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			both[i] = c
		}
		for n := range 20 {
			l, err := headgate.ParseNamed("login", fmt.Sprintf("gcra %d/s", 1000+n))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := both[n%2].Set(t.Context(), catalog.By{}, catalog.Definition{Limit: l}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if got, err := both[1-n%2].Get("login"); err != nil || got.String() != l.String() {
				t.Errorf("two seconds after change %d: %v, %v", n, got, err)
			}
			time.Sleep(70 * time.Millisecond)
		}
	})
}

// TestAllFeelAChange changes a limit again and again under load: from SQL, by the command on a host without a file, by
// a program, and by the files of two servers.
func TestAllFeelAChange(t *testing.T) {
	t.Parallel()
	changes := tier.Pick(4, 12, 120)
	url := migrated.Postgres(t)
	dir := t.TempDir()
	files := []string{filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")}
	servers := make([]*server, len(files))
	for i, file := range files {
		write(t, file, "store: "+url+"\nlimits:\n  login: gcra 1000/s\n")
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
	program, err := catalog.Open(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()

	var load sync.WaitGroup
	var asked atomic.Int64
	over := make(chan struct{})
	for i := range 4 {
		load.Go(func() {
			client := &http.Client{}
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				default:
				}
				d, status, err := servers[i%2].take(client, fmt.Sprintf(`{"limit":"login","key":"k%d"}`, n%100))
				if err != nil || status != http.StatusOK || d.Limit != "login" {
					t.Errorf("status %d, %+v, %v", status, d, err)
					return
				}
				asked.Add(1)
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
			want = notation // the row has what was written to it
		case 1:
			command(t, exitOK, "limits", "set", "login", notation, "--store", url)
		case 2:
			l, err := headgate.ParseNamed("login", notation)
			if err != nil {
				t.Fatal(err)
			}
			d := catalog.Definition{Limit: l, Origin: "file"}
			if _, err := program.Set(t.Context(), catalog.By{}, d); err != nil {
				t.Fatal(err)
			}
		case 3:
			write(t, files[n/4%2], "store: "+url+"\nlimits:\n  login: "+notation+"\n")
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
				l, err := program.Get("login")
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
	close(over)
	load.Wait()
	t.Logf("%d changes, %d decisions beside them", changes, asked.Load())
	var versions int
	if err := conn.QueryRow(t.Context(), `select count(*) from headgate.versions`).Scan(&versions); err != nil || versions != changes+1 {
		t.Errorf("%d versions, %v; want one for each change", versions, err)
	}
}
