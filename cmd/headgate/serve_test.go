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
	cmd        *exec.Cmd
	url        string
	out        outputBuffer
	outputDone chan struct{} // closed at the end of the output
}

// outputBuffer collects the output of a process.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *outputBuffer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *outputBuffer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// start starts a server in a folder, and waits until it listens.
func start(t *testing.T, dir string, args ...string) *server {
	t.Helper()
	s := launch(t, dir, args...)
	s.waitUntil(t, "the server to listen", s.listens)
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
	s := &server{outputDone: make(chan struct{})}
	s.cmd = exec.Command(program, append([]string{
		"serve", "--http", "127.0.0.1:0", "--deadline", "1m", // for busy machines
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
	go func() { defer close(s.outputDone); _, _ = io.Copy(&s.out, stderr) }()
}

// startReady starts a server and waits until its store is ready. A server may listen before its store is ready.
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
		if output := s.out.String(); t.Failed() {
			t.Logf("the server says %q", output[max(0, len(output)-2000):])
		}
	}()
	await.Until(t, what, condition)
}

// stop ends the server by SIGTERM, and returns all of its output. The server has to exit with 0.
func (s *server) stop(t *testing.T) string {
	t.Helper()
	return s.stopWith(t, syscall.SIGTERM)
}

// stopWith ends the server by a signal, and returns all of its output. The server has to exit with 0.
func (s *server) stopWith(t *testing.T, sig os.Signal) string {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	await.Receive(t, "the end of the server", s.outputDone)
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("after %s: got %v, want exit 0; the output is %q", sig, err, s.out.String())
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
	var times []int64
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
				times = append(times, d.At)
				if d.Allowed {
					admitted++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	// Decide again at the decision times, to know how many should have passed.
	slices.Sort(times)
	p := limit.Params()
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: limit.Name(), Key: "k"}, Params: p, Cost: p.Unit, Count: 1}
	var state law.State
	want := int64(0)
	for _, clock := range times {
		if d := law.Decide(state, &op, clock, 0, nil); d.Outcome.Granted > 0 {
			state = d.Outcome.State
			want++
		}
	}
	begin, end := times[0], times[len(times)-1]
	bound := 20 + (end-begin)*50/1_000_000
	t.Logf("%d requests, admitted %d; by the decision times %d, burst + rate x time = %d", len(times), admitted,
		want, bound)
	if admitted != want || admitted > bound {
		t.Errorf("admitted %d, want %d and no more than %d", admitted, want, bound)
	}

	monthBody := `{"limit":"fixed-window 100/month","key":"k","cost":40}`
	first, _, err := s.take(http.DefaultClient, monthBody)
	if err != nil || first.Remaining != "60" {
		t.Fatalf("got %+v, %v, want 60 remaining", first, err)
	}
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s = start(t, dir)
	second, _, err := s.take(http.DefaultClient, monthBody)
	wantRemaining := json.Number("20")
	if time.UnixMicro(second.At).UTC().Month() != time.UnixMicro(first.At).UTC().Month() {
		wantRemaining = "60" // a month has ended meanwhile
	}
	if err != nil || second.Remaining != wantRemaining {
		t.Errorf("after kill -9: got %+v, %v; want %s remaining", second, err, wantRemaining)
	}

	s.stop(t)
}

func TestCommandsThroughAServer(t *testing.T) {
	dir := t.TempDir()
	configFile := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(configFile, []byte("limits:\n  login: sliding-log 1/1h\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, dir, "--config", configFile, "--store", "memory:")
	run := func(args string) (code int, output string) {
		var out bytes.Buffer
		code = runMain(t.Context(), append(strings.Fields(args), "--server", s.url), nil, &out, &out)
		return code, out.String()
	}
	for _, tt := range []struct {
		args     string
		code     int
		wantText string
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
		if code, output := run(tt.args); code != tt.code || !strings.Contains(output, tt.wantText) {
			t.Errorf("%s: exit %d, %q; want %d and %q", tt.args, code, output, tt.code, tt.wantText)
		}
	}
	// A refusal is listed with its retry-after, an hour or a little less.
	if _, output := run("why alice"); !regexp.MustCompile(`  login  1     (1 h|59 min)`).MatchString(output) {
		t.Errorf("why alice: got %q, want a retry-after of an hour", output)
	}
	// With a config file, requests can only name limits.
	var out bytes.Buffer
	code := runMain(t.Context(), []string{"take", "token-bucket 5/s", "alice", "--server", s.url}, nil, &out, &out)
	if code != exitError || !strings.Contains(out.String(), "notations are not accepted") {
		t.Errorf("take of a notation: exit %d, %q, want an error", code, out.String())
	}
}

// TestCommandsEscapeControlCharacters checks that keys and reasons of blocks, which may come by HTTP and SQL too,
// cannot control a terminal.
func TestCommandsEscapeControlCharacters(t *testing.T) {
	t.Parallel()
	storeURL := "sqlite:" + filepath.Join(t.TempDir(), "h.db")
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
		if code := runMain(t.Context(), append(args, "--store", storeURL), nil, &out, &out); code != exitOK {
			t.Fatalf("%q: code %d, %q", args, code, out.String())
		}
		if output := out.String(); strings.ContainsAny(output, "\x1b\a") || strings.Contains(output, "\nfake") {
			t.Errorf("%q: got control characters in %q", args, output)
		}
	}
}

// TestHostAndMaxBufferedSettings sends requests to several host names, and one body that is larger than --max-buffered.
func TestHostAndMaxBufferedSettings(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), "--host", "gate.example", "--host", "other.example", "--max-buffered", "8KiB",
		"--max-requests", "2")
	post := func(host, body string) int {
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
	const charge = `{"limit":"token-bucket 5/1m","key":"k"}`
	smallBatch, largeBatch := `{"requests":[`+charge+`]}`, `{"requests":[`+charge+strings.Repeat(","+charge, 5000)+`]}`
	for _, tt := range []struct {
		host, body string
		want       int
	}{
		{"gate.example", smallBatch, 200},
		{"other.example:80", smallBatch, 200},
		{"localhost", smallBatch, 200},
		{"evil.example", smallBatch, 421},
		{"localhost", largeBatch, 503},
	} {
		if got := post(tt.host, tt.body); got != tt.want {
			t.Errorf("%s, %d bytes: status %d, want %d", tt.host, len(tt.body), got, tt.want)
		}
	}
}
