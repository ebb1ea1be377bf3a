package deploy_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/store/memory"
)

// proxy is a proxy with a configuration.
type proxy struct {
	folder           string
	program          func(t *testing.T) string
	command          func(program, dir string) *exec.Cmd
	awayStatus       int    // status of answers while Headgate is away
	wrongTokenStatus int    // status of answers if Headgate does not know the token
	canOpen          bool   // its configuration can let requests pass while Headgate is away
	tellsRemaining   bool   // its answers have RateLimit when a request has passed
	unixPrefix       string // prefix for the path of a Unix socket; empty: not supported
	waitsLong        bool   // it waits for a silent Headgate longer than a test does
}

// traefikBinary is built by `make traefik`; the variable traefikEnv may name another binary.
const (
	traefikBinary = "../bin/traefik-v3.6.12"
	traefikEnv    = "HEADGATE_TEST_TRAEFIK"
)

// token is the token that the proxies show to Headgate.
var token = auth.NewToken()

var proxies = []proxy{
	{
		folder: "nginx", awayStatus: 503, wrongTokenStatus: 503, canOpen: true, tellsRemaining: true, unixPrefix: "unix:",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "nginx", "nginx-light") },
		command: func(program, dir string) *exec.Cmd {
			return exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"),
				"-e", filepath.Join(dir, "error.log"),
				"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "nginx.pid")+";")
		},
	},
	{
		folder: "caddy", awayStatus: 503, wrongTokenStatus: 503, canOpen: true, tellsRemaining: true, unixPrefix: "unix/",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "caddy", "caddy") },
		command: func(program, _ string) *exec.Cmd { return exec.Command(program, "run", "--config", "Caddyfile") },
	},
	{
		folder: "haproxy", awayStatus: 503, wrongTokenStatus: 503, canOpen: true, tellsRemaining: true, unixPrefix: "unix@",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "haproxy", "haproxy") },
		command: func(program, _ string) *exec.Cmd { return exec.Command(program, "-db", "-f", "haproxy.cfg") },
	},
	{
		folder: "traefik", awayStatus: 500, wrongTokenStatus: 401, waitsLong: true,
		program: func(t *testing.T) string {
			t.Helper()
			path, named := os.LookupEnv(traefikEnv)
			if !named {
				path, _ = filepath.Abs(traefikBinary)
			}
			if _, err := os.Stat(path); err != nil && !named {
				t.Skipf("Traefik is not built: make traefik does, or %s names one", traefikEnv)
			}
			return path
		},
		command: func(program, _ string) *exec.Cmd { return exec.Command(program, "--configFile=traefik.yml") },
	},
}

// limitPerClient is how many requests of a client may pass.
const limitPerClient = 20

// site is a proxy with the application behind it and the Headgate that decides for it.
type site struct {
	url         string
	application *recorder
	checks      *recorder // requests to Headgate
	headgate    *edge.Server
	addr        string // address of Headgate
	limiter     *headgate.Limiter
}

// recorder records the headers of the requests to a handler.
type recorder struct {
	handler http.Handler
	mu      sync.Mutex
	headers []http.Header // guarded by mu
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.headers = append(r.headers, req.Header.Clone())
	r.mu.Unlock()
	r.handler.ServeHTTP(w, req)
}

// take returns the recorded headers and clears the record.
func (r *recorder) take() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	recorded := r.headers
	r.headers = nil
	return recorded
}

// echo is an application that knows nothing of limits. It answers with the body of a request, at two paths with the
// statuses 403 and 500.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch r.URL.Path {
	case "/forbidden":
		w.WriteHeader(http.StatusForbidden)
	case "/broken":
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(body)
})

// siteConfig has the differences between the sites of tests.
type siteConfig struct {
	open          bool   // requests pass while Headgate is away
	token         string // token that Headgate knows; empty: the token of the proxies
	shortTimeouts bool   // keep the time limits of the configuration, which are too short for a busy machine
	unix          bool   // Headgate listens on a Unix socket, and the proxy shows no token
	rules         string // rules of the config file; empty: the query in the proxy's configuration decides
}

// newSite starts a proxy from its configuration, with the addresses replaced as README.md says, and a Headgate that
// demands the token of the proxy, unless they share a Unix socket.
func newSite(t *testing.T, p *proxy, cfg siteConfig) *site {
	t.Helper()
	program := p.program(t)
	s := &site{application: &recorder{handler: echo}}
	application := dbtest.Listen(t, freeAddress(t))
	go func() { _ = http.Serve(application, s.application) }()
	text := fmt.Appendf(nil, "limits:\n  api: sliding-log %d/1h\n%s", limitPerClient, cfg.rules)
	c, err := config.Parse("headgate.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(nil)
	t.Cleanup(func() { store.Close() })
	s.limiter = headgate.New(store, &headgate.Config{Names: c, Timeout: time.Minute})
	log := slog.New(slog.DiscardHandler)
	access := &rest.Config{Tokens: openTokenFile(t, cmp.Or(cfg.token, token))}
	s.checks = &recorder{handler: rest.New(service.New(s.limiter, c, nil), log, access)}
	s.headgate = edge.NewServer(s.checks, log, &edge.Config{Proxied: rest.Proxied()})
	s.addr = freeAddress(t) // no other test takes it when Headgate is stopped
	listener := dbtest.Listen(t, s.addr)
	headgateAddr := s.addr // as the proxy's configuration writes it
	if cfg.unix {
		dir, err := os.MkdirTemp("", "headgate") // the path of a socket has to be short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if listener, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
			t.Fatal(err)
		}
		headgateAddr = p.unixPrefix + filepath.Join(dir, "s")
	}
	go func() { _ = s.headgate.Serve(listener) }()
	t.Cleanup(func() { s.headgate.Close() })
	proxyToken := token
	if cfg.unix {
		proxyToken = ""
	}
	addr := freeAddress(t)
	// Abstract sockets such as abns@headgate are shared by all tests on the machine.
	dir := copyFolder(t, p.folder, cfg, proxyToken, map[string]string{
		"127.0.0.1:8080": headgateAddr, "127.0.0.1:8081": application.Addr().String(), "8000": addr[len("127.0.0.1:"):],
	}, strings.NewReplacer(append(ruleReplacements(cfg), "abns@headgate", "abns@headgate-"+addr)...))
	start := func() *exec.Cmd {
		cmd := p.command(program, dir)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HEADGATE_TOKEN="+proxyToken, "HOME="+dir, "XDG_DATA_HOME="+dir,
			"XDG_CONFIG_HOME="+dir, "CADDY_ADMIN="+freeAddress(t))
		return cmd
	}
	s.url = "http://" + addr
	dbtest.Start(t, start, func() error {
		res, err := http.Get(s.url + "/")
		if err == nil {
			if res.Body.Close(); res.StatusCode == http.StatusNotFound { // the proxy has not loaded its routes yet
				err = fmt.Errorf("status %d", res.StatusCode)
			}
		}
		return err
	})
	s.reset(t)
	return s
}

// openTokenFile writes and opens a file of one token, which may charge the limits whose names begin with api.
func openTokenFile(t *testing.T, token string) *auth.File {
	t.Helper()
	text, err := auth.FileText([]auth.Entry{
		{Name: "proxy", Role: "take", Limits: []string{"api*"}, Hashes: []string{auth.Hash(token)}},
	})
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, string(text))
	file, openErr := auth.Open(path)
	if err != nil || openErr != nil {
		t.Fatal(err, openErr)
	}
	return file
}

// copyFolder copies the files of a proxy, adapts them to cfg, and replaces addresses, each of which must be in a file.
func copyFolder(t *testing.T, name string, cfg siteConfig, token string, addresses map[string]string,
	extra *strings.Replacer,
) string {
	t.Helper()
	dir := t.TempDir()
	entries, err := os.ReadDir(name)
	if err != nil {
		t.Fatal(err)
	}
	missing := maps.Clone(addresses)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(name, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if cfg.open {
			text = openProxy(text)
		}
		if !cfg.shortTimeouts {
			text = timeLimit.ReplaceAllString(text, "60s")
		}
		var pairs []string
		for from, to := range addresses {
			if strings.Contains(text, from) {
				delete(missing, from)
			}
			pairs = append(pairs, from, to)
		}
		text = extra.Replace(strings.NewReplacer(pairs...).Replace(text))
		if name == "nginx" { // a user who is not root cannot write to the usual folders
			text = strings.Replace(text, "http {", "http {\naccess_log off; client_body_temp_path "+dir+"/body;\n"+
				"proxy_temp_path "+dir+"/proxy;", 1)
			if token != "" {
				write(t, filepath.Join(dir, "headgate-token.conf"), `proxy_set_header Headgate-Token "`+token+`";`)
			}
		}
		write(t, filepath.Join(dir, e.Name()), text)
	}
	if len(missing) > 0 {
		t.Fatalf("%s lacks the addresses %v", name, missing)
	}
	return dir
}

// timeLimit matches the time that a proxy waits for Headgate.
var timeLimit = regexp.MustCompile(`\b[12]s\b`)

// freeAddress returns an address that no other test takes, even after its listener is closed.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", dbtest.FreePort(t))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// openProxy changes a configuration as its comments say, to let requests pass while Headgate is away.
func openProxy(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "closed\n") {
			line = strings.Replace(line, "#open ", "", 1)
			lines = append(lines, strings.Replace(line, "away_passes = false", "away_passes = true", 1))
		}
	}
	return strings.Join(lines, "")
}

// reset resets the limit of the client, and clears the records.
func (s *site) reset(t *testing.T) {
	t.Helper()
	limit, err := headgate.Named("api")
	if err == nil {
		_, err = s.limiter.Reset(t.Context(), limit, "127.0.0.1")
	}
	if err != nil {
		t.Fatal(err)
	}
	s.application.take()
	s.checks.take()
}

// stop stops Headgate, and closes the connections to it.
func (s *site) stop() { s.headgate.Close() }

// listenSilently accepts requests in the place of a stopped Headgate, and never answers. It returns their count.
func (s *site) listenSilently(t *testing.T) (requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	l := dbtest.Listen(t, s.addr)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				for r := bufio.NewReader(c); ; requests.Add(1) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
				}
			}()
		}
	}()
	return requests
}

// client keeps connections as a browser does, and follows no redirect.
var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 16},
	Timeout:       time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// answer is the answer to an end user.
type answer struct {
	status int
	header http.Header
	body   string
}

// send sends a request of an end user with headers such as "Origin: null".
func (s *site) send(method, path, body string, headers ...string) (answer, error) {
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, reader)
	if err != nil {
		return answer{}, err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text)}, err
}
