package rest_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

//go:embed testdata/attack.html
var attackPage string

// ownPage is a page of the server's own, which asks as a page does that means well.
const ownPage = `<!doctype html><script>
const ask = (path, init) => fetch(path, init).then(r => r.text()).then(text => ({url: path, text}));
Promise.all([ask('/v1/take', {method: 'POST', body: '{"limit":"token-bucket 5/1m","key":"k"}'}), ask('/v1/cells')])
  .then(read => fetch('/report', {method: 'POST', body: JSON.stringify(read)}));
</script>`

// readable has what a page could read.
type readable []struct{ Way, URL, Text string }

// target is a server that is attacked.
type target struct {
	addr    string
	handler http.Handler // behind what protects it
	mu      sync.Mutex
	asked   map[string]int // paths that requests got to; guarded by mu
}

// secret is a key that a page is not to see.
const secret = "secret-key"

// times returns how often a pattern was requested.
func (tt *target) times(pattern string) int {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	return tt.asked[pattern]
}

// newTarget returns a server with a key in its store. Only with protection does it
// stand behind package edge. It serves a page too.
func newTarget(t *testing.T, protection bool, own http.Handler) *target {
	t.Helper()
	s := rest.New(service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	tt := &target{handler: s, asked: map[string]int{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" || r.URL.Path == "/report" {
			w.Header().Del("Content-Security-Policy") // of a page with a script
			own.ServeHTTP(w, r)
			return
		}
		tt.mu.Lock()
		tt.asked[r.Method+" "+r.URL.Path]++
		tt.mu.Unlock()
		s.ServeHTTP(w, r)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tt.addr = l.Addr().String()
	if protection {
		server := edge.NewServer(h, slog.New(slog.DiscardHandler), &edge.Config{Proxied: rest.Proxied()})
		go func() { _ = server.Serve(l) }()
	} else {
		go func() { _ = http.Serve(l, h) }()
	}
	t.Cleanup(func() { l.Close() })
	ask(s, "POST", "/v1/take", `{"limit":"token-bucket 5/1h","key":"`+secret+`"}`)
	return tt
}

// state returns what the store of a target holds.
func (tt *target) state() string {
	_, out, _ := ask(tt.handler, "GET", "/v1/cells", "")
	var keys []string
	for _, c := range out["cells"].([]any) {
		m := c.(map[string]any)
		if key := fmt.Sprint(m["key"]); !strings.HasPrefix(key, "healthz ") ||
			m["limit"] != "token-bucket 1000000000/s burst 1000" {
			keys = append(keys, fmt.Sprint(m["limit"], " ", key, " ", m["blocked_until"]))
		}
	}
	return strings.Join(keys, "\n")
}

// attacking serves a page that attacks.
func attacking(reports chan<- readable, targets ...string) http.Handler {
	type endpoint struct {
		Method string `json:"method"`
		Path   string `json:"path"`
		Body   string `json:"body"`
	}
	attack := map[string]any{"targets": targets}
	var endpoints []endpoint
	for _, pattern := range rest.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		endpoints = append(endpoints, endpoint{method, path + queries[path], bodies[path]})
	}
	attack["endpoints"] = endpoints
	text, _ := json.Marshal(attack)
	return serve(strings.Replace(attackPage, "ATTACK", string(text), 1), reports)
}

// serve serves a page, and gives away what it reports.
func serve(page string, reports chan<- readable) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, page)
		case "/report":
			var read readable
			_ = json.NewDecoder(r.Body).Decode(&read)
			reports <- read
		default:
			http.NotFound(w, r)
		}
	})
}

// browse opens a page in Chromium and returns what it reports. All names that end with
// .test are 127.0.0.1 there.
func browse(t *testing.T, address string, reports <-chan readable) readable {
	t.Helper()
	chromium := dbtest.Program(t, "chromium", "chromium")
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
		"--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP *.test 127.0.0.1", address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	says, err := os.Create(filepath.Join(t.TempDir(), "says")) // a pipe would be open until the last process ends
	if err != nil {
		t.Fatal(err)
	}
	defer says.Close()
	cmd.Stderr = says
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	defer func() {
		if t.Failed() {
			text, _ := os.ReadFile(says.Name())
			t.Logf("Chromium says:\n%s", text)
		}
	}()
	within, end := context.WithTimeout(t.Context(), 15*time.Minute) // there are thousands of requests
	defer end()
	select {
	case read := <-reports:
		return read
	case <-within.Done():
		t.Fatalf("Chromium does not open %s", address)
		return nil
	}
}

// TestPagesInARealBrowser lets Chromium open pages that attack every endpoint: one of another origin, one whose
// name was made to resolve to the server's address after it was loaded, and, for comparison, one of the server's own.
func TestPagesInARealBrowser(t *testing.T) {
	tier.Engines(t)
	reports := make(chan readable, 10)
	own := serve(ownPage, reports)
	guarded, open := newTarget(t, true, own), newTarget(t, false, own)
	before, openBefore := guarded.state(), open.state()
	if !strings.Contains(before, secret) || before != openBefore {
		t.Fatalf("there is %q, %q", before, openBefore)
	}

	_, port, _ := net.SplitHostPort(guarded.addr)
	evil := httptest.NewServer(attacking(reports, "http://"+guarded.addr, "http://localhost:"+port,
		"http://"+open.addr))
	defer evil.Close()
	_, port, _ = net.SplitHostPort(evil.Listener.Addr().String())
	read := browse(t, "http://evil.test:"+port+"/page", reports)
	for _, r := range read {
		t.Errorf("a page of another origin reads %s by %s: %.200s", r.URL, r.Way, r.Text)
	}
	unchanged(t, "a page of another origin", guarded, before)
	// Without protection the same page gets to every endpoint.
	for _, pattern := range rest.Patterns() {
		if open.times(pattern) == 0 {
			t.Errorf("the page did not try %s, or not well", pattern)
		}
	}
	if open.state() == openBefore {
		t.Error("without protection the page changed nothing")
	}

	for _, at := range []*target{guarded, open} {
		read = browse(t, rebound(t, reports, at), reports)
		if at == guarded {
			for _, r := range read {
				var p api.Problem
				if json.Unmarshal([]byte(r.Text), &p) != nil || p.Status != http.StatusMisdirectedRequest {
					t.Errorf("a page of a rebound name reads %s by %s: %.200s", r.URL, r.Way, r.Text)
				}
			}
			unchanged(t, "a page of a rebound name", guarded, before)
		} else if !strings.Contains(fmt.Sprint(read), secret) {
			t.Errorf("without protection a page of a rebound name reads %.1000s", fmt.Sprint(read))
		}
	}

	for _, host := range []string{"127.0.0.1", "localhost"} {
		_, port, _ = net.SplitHostPort(guarded.addr)
		read = browse(t, "http://"+host+":"+port+"/page", reports)
		if !strings.Contains(fmt.Sprint(read), secret) || !strings.Contains(fmt.Sprint(read), `"allowed":true`) ||
			guarded.times("POST /v1/take") == 0 {
			t.Errorf("a page of the server's own at %s reads %.1000s", host, fmt.Sprint(read))
		}
	}
	// as curl does
	res, err := http.Post("http://"+guarded.addr+"/v1/take", "application/x-www-form-urlencoded",
		strings.NewReader(bodies["/v1/take"]))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a program gets status %d", res.StatusCode)
	}
}

// unchanged fails if requests got through to a server.
func unchanged(t *testing.T, what string, tt *target, before string) {
	t.Helper()
	tt.mu.Lock()
	defer tt.mu.Unlock()
	// Proxies ask this path with the headers of pages, so it looks for headers that no page can send.
	maps.DeleteFunc(tt.asked, func(pattern string, _ int) bool { return strings.HasSuffix(pattern, " /v1/auth") })
	if len(tt.asked) > 0 {
		t.Errorf("%s gets to %v", what, tt.asked)
	}
	if after := tt.state(); after != before {
		t.Errorf("%s changed %q to %q", what, before, after)
	}
}

// rebound returns the address of a page whose name is the server's for everything
// else: as when the name resolved to another server at first.
func rebound(t *testing.T, reports chan<- readable, to *target) string {
	t.Helper()
	behind := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: to.addr})
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" || r.URL.Path == "/report" {
			attacking(reports, "http://"+r.Host).ServeHTTP(w, r)
			return
		}
		behind.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return "http://rebind.test:" + port + "/page"
}
