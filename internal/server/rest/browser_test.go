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

// ownPage is a page of the server itself, which sends two requests and reports their answers.
const ownPage = `<!doctype html><script>
const ask = (path, init) => fetch(path, init).then(r => r.text()).then(text => ({url: path, text}));
Promise.all([ask('/v1/take', {method: 'POST', body: '{"limit":"token-bucket 5/1m","key":"k"}'}), ask('/v1/cells')])
  .then(read => fetch('/report', {method: 'POST', body: JSON.stringify(read)}));
</script>`

// report has the answers that a page could read.
type report []struct{ Way, URL, Text string }

// target is a server that is attacked.
type target struct {
	addr    string
	handler http.Handler // without package edge
	mu      sync.Mutex
	counts  map[string]int // numbers of requests by method and path; guarded by mu
}

// secret is a key in the store that no page of another origin may read.
const secret = "secret-key"

// count returns how many requests for a pattern reached the handler, behind package edge if there is one.
func (tg *target) count(pattern string) int {
	tg.mu.Lock()
	defer tg.mu.Unlock()
	return tg.counts[pattern]
}

// newTarget returns a server with a key in its store and a page. With protection it stands behind package edge.
func newTarget(t *testing.T, protection bool, page http.Handler) *target {
	t.Helper()
	s := rest.New(service.New(headgate.New(memory.New(&memory.Config{Names: true}), nil), &config.Config{}, nil),
		slog.New(slog.DiscardHandler), nil)
	tg := &target{handler: s, counts: map[string]int{}}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" || r.URL.Path == "/report" {
			w.Header().Del("Content-Security-Policy") // the page has a script
			page.ServeHTTP(w, r)
			return
		}
		tg.mu.Lock()
		tg.counts[r.Method+" "+r.URL.Path]++
		tg.mu.Unlock()
		s.ServeHTTP(w, r)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tg.addr = l.Addr().String()
	if protection {
		server := edge.NewServer(h, slog.New(slog.DiscardHandler), &edge.Config{Proxied: rest.Proxied()})
		go func() { _ = server.Serve(l) }()
	} else {
		go func() { _ = http.Serve(l, h) }()
	}
	t.Cleanup(func() { l.Close() })
	send(s, "POST", "/v1/take", `{"limit":"token-bucket 5/1h","key":"`+secret+`"}`)
	return tg
}

// state returns the limits, keys and blocks in the store of a target, without the probes of /healthz.
func (tg *target) state() string {
	_, out, _ := send(tg.handler, "GET", "/v1/cells", "")
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

// serveAttack serves a page that sends the request of every endpoint to each target.
func serveAttack(reports chan<- report, targets ...string) http.Handler {
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
	return servePage(strings.Replace(attackPage, "ATTACK", string(text), 1), reports)
}

// servePage serves a page, and sends what it reports to a channel.
func servePage(page string, reports chan<- report) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, page)
		case "/report":
			var got report
			_ = json.NewDecoder(r.Body).Decode(&got)
			reports <- got
		default:
			http.NotFound(w, r)
		}
	})
}

// browse opens a page in Chromium and returns what it reports. All names that end with .test are 127.0.0.1 there.
func browse(t *testing.T, address string, reports <-chan report) report {
	t.Helper()
	chromium := dbtest.Program(t, "chromium", "chromium")
	cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-port=0",
		"--user-data-dir="+t.TempDir(), "--host-resolver-rules=MAP *.test 127.0.0.1", address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// A file, since a pipe would be open until the last process ends.
	stderr, err := os.Create(filepath.Join(t.TempDir(), "says"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	defer func() {
		if t.Failed() {
			text, _ := os.ReadFile(stderr.Name())
			t.Logf("Chromium says:\n%s", text)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // there are thousands of requests
	defer cancel()
	select {
	case got := <-reports:
		return got
	case <-ctx.Done():
		t.Fatalf("Chromium does not open %s", address)
		return nil
	}
}

// TestPagesInARealBrowser lets Chromium open pages that attack every endpoint: one of another origin, and one whose
// name resolves to the server's address after it was loaded. A page of the server's own must work, for comparison.
func TestPagesInARealBrowser(t *testing.T) {
	tier.Engines(t)
	reports := make(chan report, 10)
	page := servePage(ownPage, reports)
	guarded, unprotected := newTarget(t, true, page), newTarget(t, false, page)
	guardedState, unprotectedState := guarded.state(), unprotected.state()
	if !strings.Contains(guardedState, secret) || guardedState != unprotectedState {
		t.Fatalf("the stores have %q and %q, want the same with %s", guardedState, unprotectedState, secret)
	}

	_, port, _ := net.SplitHostPort(guarded.addr)
	evil := httptest.NewServer(serveAttack(reports, "http://"+guarded.addr, "http://localhost:"+port,
		"http://"+unprotected.addr))
	defer evil.Close()
	_, port, _ = net.SplitHostPort(evil.Listener.Addr().String())
	got := browse(t, "http://evil.test:"+port+"/page", reports)
	for _, r := range got {
		t.Errorf("a page of another origin reads %s by %s: %.200s", r.URL, r.Way, r.Text)
	}
	checkUnchanged(t, "a page of another origin", guarded, guardedState)
	// Without protection the same page reaches every endpoint.
	for _, pattern := range rest.Patterns() {
		if unprotected.count(pattern) == 0 {
			t.Errorf("without protection no request of the page reaches %s", pattern)
		}
	}
	if unprotected.state() == unprotectedState {
		t.Error("without protection the page changed nothing")
	}

	for _, tg := range []*target{guarded, unprotected} {
		got = browse(t, serveRebound(t, reports, tg), reports)
		if tg == guarded {
			for _, r := range got {
				var p api.Problem
				if json.Unmarshal([]byte(r.Text), &p) != nil || p.Status != http.StatusMisdirectedRequest {
					t.Errorf("a page of a rebound name reads %s by %s: %.200s", r.URL, r.Way, r.Text)
				}
			}
			checkUnchanged(t, "a page of a rebound name", guarded, guardedState)
		} else if !strings.Contains(fmt.Sprint(got), secret) {
			t.Errorf("without protection a page of a rebound name reads %.1000s", fmt.Sprint(got))
		}
	}

	for _, host := range []string{"127.0.0.1", "localhost"} {
		_, port, _ = net.SplitHostPort(guarded.addr)
		got = browse(t, "http://"+host+":"+port+"/page", reports)
		if !strings.Contains(fmt.Sprint(got), secret) || !strings.Contains(fmt.Sprint(got), `"allowed":true`) ||
			guarded.count("POST /v1/take") == 0 {
			t.Errorf("a page of the server's own at %s reads %.1000s", host, fmt.Sprint(got))
		}
	}
	// A request without the headers of a browser, such as one of curl, passes.
	res, err := http.Post("http://"+guarded.addr+"/v1/take", "application/x-www-form-urlencoded",
		strings.NewReader(bodies["/v1/take"]))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("a program gets status %d, want 200", res.StatusCode)
	}
}

// checkUnchanged fails the test if requests, but for those of /v1/auth, passed package edge, or if the store changed.
func checkUnchanged(t *testing.T, what string, tg *target, state string) {
	t.Helper()
	tg.mu.Lock()
	defer tg.mu.Unlock()
	// Proxies request this path with the headers of pages, so its handler requires headers that no page can send.
	maps.DeleteFunc(tg.counts, func(pattern string, _ int) bool { return strings.HasSuffix(pattern, " /v1/auth") })
	if len(tg.counts) > 0 {
		t.Errorf("%s gets to %v", what, tg.counts)
	}
	if after := tg.state(); after != state {
		t.Errorf("%s changed %q to %q", what, state, after)
	}
}

// serveRebound serves an attack whose host name leads to the target for all other paths. It returns the page's address.
func serveRebound(t *testing.T, reports chan<- report, tg *target) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(&url.URL{Scheme: "http", Host: tg.addr})
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/page" || r.URL.Path == "/report" {
			serveAttack(reports, "http://"+r.Host).ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	return "http://rebind.test:" + port + "/page"
}
