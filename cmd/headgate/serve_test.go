package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/law"
)

// server is a headgate process.
type server struct {
	cmd  *exec.Cmd
	url  string
	out  output
	over chan struct{} // closed at the end of its output
}

// output collects the output of a process.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a server in a folder, and waits until it listens.
func start(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := launch(t, dir, args...)
	s.waitUntil(t, "that it listens", s.listens)
	return s
}

// listens reports whether the server has printed its address, and sets url.
func (s *server) listens() bool {
	_, rest, found := strings.Cut(s.out.String(), "listens on ")
	s.url, _, _ = strings.Cut(rest, " ")
	return found && strings.Contains(rest, " ")
}

// launch starts a server, and waits for nothing.
func launch(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := newServer(t, dir, args...)
	s.startProcess(t)
	return s
}

// newServer returns a server that is not started yet.
func newServer(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := &server{over: make(chan struct{})}
	s.cmd = exec.Command(program, append([]string{
		"serve", "--http", "127.0.0.1:0", "--deadline", "1m", // for machines with other work
	}, args...)...)
	s.cmd.Dir = dir
	return s
}

// startProcess starts the process of the server.
func (s *server) startProcess(t *testing.T) {
	t.Helper()
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); _ = s.cmd.Wait() })
	go func() { defer close(s.over); _, _ = io.Copy(&s.out, stderr) }()
}

// startReady starts a server and waits until its store is ready: a server listens without one after a while.
func startReady(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := start(t, dir, args...)
	s.waitReady(t, http.StatusOK)
	return s
}

// waitUntil waits until a condition holds.
func (s *server) waitUntil(t *testing.T, what string, condition func() bool) {
	t.Helper()
	defer func() {
		if said := s.out.String(); t.Failed() {
			t.Logf("the server says %q", said[max(0, len(said)-2000):])
		}
	}()
	await.Until(t, what, condition)
}

// stop ends the server by SIGTERM, and returns all of its output.
func (s *server) stop(t *testing.T) string {
	t.Helper()
	return s.end(t, syscall.SIGTERM)
}

// end ends the server by a signal, and returns all of its output.
func (s *server) end(t *testing.T, sig os.Signal) string {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the end of the server", s.over)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after %s: %v; it said %q", sig, err, s.out.String())
	}
	return s.out.String()
}

func (s *server) take(client *http.Client, body string) (d api.Decision, status int, err error) {
	res, err := client.Post(s.url+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		return d, 0, err
	}
	defer res.Body.Close()
	return d, res.StatusCode, json.NewDecoder(res.Body).Decode(&d)
}

func TestServeAdmitsExactlyAndKeepsItsStateThroughKill9(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir)
	limit := headgate.MustParse("token-bucket 50/s burst 20")
	var mu sync.Mutex
	var clocks []int64
	admitted := int64(0)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				d, status, err := s.take(http.DefaultClient, `{"limit":"token-bucket 50/s burst 20","key":"k"}`)
				if err != nil || status != http.StatusOK {
					t.Errorf("status %d, %v", status, err)
					return
				}
				mu.Lock()
				clocks = append(clocks, d.At)
				if d.Allowed {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	// Decide again at the decision times, to know how many should have passed.
	slices.Sort(clocks)
	p := limit.Params()
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: "k"}, Params: p, Cost: p.Unit, Count: 1}
	var state law.State
	want := int64(0)
	for _, clock := range clocks {
		if d := law.Decide(state, &op, clock, 0, nil); d.Outcome.Granted > 0 {
			state = d.Outcome.State
			want++
		}
	}
	first, last := clocks[0], clocks[len(clocks)-1]
	bound := 20 + (last-first)*50/1_000_000
	t.Logf("asked %d, admitted %d; by the decision times %d, burst + rate x time = %d", len(clocks), admitted,
		want, bound)
	if admitted != want || admitted > bound {
		t.Errorf("admitted %d, want %d and no more than %d", admitted, want, bound)
	}

	month := `{"limit":"fixed-window 100/month","key":"k","cost":40}`
	before, _, err := s.take(http.DefaultClient, month)
	if err != nil || before.Remaining != "60" {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s = start(t, dir)
	after, _, err := s.take(http.DefaultClient, month)
	left := json.Number("20")
	if time.UnixMicro(after.At).UTC().Month() != time.UnixMicro(before.At).UTC().Month() {
		left = "60" // a month has ended meanwhile
	}
	if err != nil || after.Remaining != left {
		t.Errorf("after kill -9: %+v, %v; want %s left", after, err, left)
	}

	s.stop(t) // exits with 0, after the requests under way
}

func TestTheCommandAsksAServer(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(config, []byte("limits:\n  login: sliding-log 1/1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "--config", config, "--store", "memory:")
	ask := func(args string) (code int, said string) {
		var out bytes.Buffer
		code = runMain(t.Context(), append(strings.Fields(args), "--server", s.url), nil, &out, &out)
		return code, out.String()
	}
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"take login alice", exitOK, "allowed  login"},
		{"take login alice", exitRefused, "refused  login"},
		{"check login alice", exitRefused, "refused  login"},
		{"inspect alice login", exitOK, "used"},
		{"why alice", exitOK, "headgate override alice login 'NEW LIMIT'\nREFUSED AT"},
		{"why alice -o json", exitOK, `"refusals":[{"at":`},
		{"why bob", exitOK, "bob has used nothing: login\nrefusals: the server remembers none of this key\n"},
		{"why bob nope", exitError, `limit: unknown: "nope"`},
		{"fill-up login bob 2.5", exitOK, "accepted 1 of 2.5  login  level 1 of 1, at the brim, remaining 0"},
		{"fill-up login bob 2.5", exitRefused, "refused  login  retry in"},
		{"fill-up login bob 0", exitError, "amount: is 0"},
		{"block alice login --for 1h", exitOK, "blocked until"},
		{"why alice", exitOK, "by an operator"},
		{"list --blocked", exitOK, "alice"},
		{"reset alice login", exitOK, "reset"},
		{"take nope alice", exitError, `limit: unknown: "nope"`},
		{"take login alice --cost 0", exitError, "cost: is 0"},
	} {
		if code, said := ask(tt.args); code != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%s: exit %d, %q; want %d and %q", tt.args, code, said, tt.code, tt.says)
		}
	}
	// A refusal is listed with its retry-after, an hour or a little less.
	if _, said := ask("why alice"); !regexp.MustCompile(`  login  1     (1 h|59 min)`).MatchString(said) {
		t.Errorf("why alice: %q", said)
	}
	// With a config, requests name limits.
	var out bytes.Buffer
	code := runMain(t.Context(), []string{"take", "token-bucket 5/s", "alice", "--server", s.url}, nil, &out, &out)
	if code != exitError || !strings.Contains(out.String(), "notations are not accepted") {
		t.Errorf("a notation: exit %d, %q", code, out.String())
	}
}

// TestAListShowsNothingButText: keys and reasons of blocks, which come by HTTP and from SQL too, cannot control a
// terminal.
func TestAListShowsNothingButText(t *testing.T) {
	t.Parallel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "h.db")
	for _, args := range [][]string{
		{"migrate"},
		{"block", "mallory\x1b[2J", "token-bucket 5/1h", "--for", "1h", "--reason", "x\x1b]0;owned\a\nfake line"},
		{"list"},
		{"list", "--blocked"},
		{"inspect", "mallory\x1b[2J", "token-bucket 5/1h"},
		{"why", "mallory\x1b[2J"},
		{"reset", "mallory\x1b[2J", "token-bucket 5/1h"},
	} {
		var out bytes.Buffer
		if code := runMain(t.Context(), append(args, "--store", store), nil, &out, &out); code != exitOK {
			t.Fatalf("%q: code %d, %q", args, code, out.String())
		}
		if said := out.String(); strings.ContainsAny(said, "\x1b\a") || strings.Contains(said, "\nfake") {
			t.Errorf("%q: %q", args, said)
		}
	}
}

// TestTheSettingsReachTheServer sends requests to several host names, and one that is larger than --max-buffered.
func TestTheSettingsReachTheServer(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--host", "gate.example", "--host", "other.example", "--max-buffered", "8KiB",
		"--max-requests", "2")
	ask := func(host, body string) int {
		req, err := http.NewRequest(http.MethodPost, s.url+"/v1/batch", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	const one = `{"limit":"token-bucket 5/1m","key":"k"}`
	few, many := `{"requests":[`+one+`]}`, `{"requests":[`+one+strings.Repeat(","+one, 5000)+`]}`
	for _, tt := range []struct {
		host, body string
		want       int
	}{
		{"gate.example", few, 200},
		{"other.example:80", few, 200},
		{"localhost", few, 200},
		{"evil.example", few, 421},
		{"localhost", many, 503},
	} {
		if got := ask(tt.host, tt.body); got != tt.want {
			t.Errorf("%s, %d bytes: status %d, want %d", tt.host, len(tt.body), got, tt.want)
		}
	}
}
