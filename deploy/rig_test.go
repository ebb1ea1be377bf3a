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
	folder  string
	program func(t *testing.T) string
	command func(program, dir string) *exec.Cmd
	away    int    // the status while Headgate is away
	wrong   int    // the status if Headgate does not know the token
	opens   bool   // it can be told to let requests pass then
	left    bool   // its answers tell what is left when a request has passed
	unix    string // before the path of a Unix socket; empty: it takes none
	patient bool   // it waits for a silent Headgate for longer than a test can
}

// traefik is where `make traefik` leaves it, and the variable that names another one.
const (
	traefikBinary = "../bin/traefik-v3.6.12"
	traefikEnv    = "HEADGATE_TEST_TRAEFIK"
)

// token is the proxies' token.
var token = auth.NewToken()

var proxies = []proxy{
	{
		folder: "nginx", away: 503, wrong: 503, opens: true, left: true, unix: "unix:",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "nginx", "nginx-light") },
		command: func(program, dir string) *exec.Cmd {
			return exec.Command(program, "-p", dir, "-c", filepath.Join(dir, "nginx.conf"),
				"-e", filepath.Join(dir, "error.log"),
				"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "nginx.pid")+";")
		},
	},
	{
		folder: "caddy", away: 503, wrong: 503, opens: true, left: true, unix: "unix/",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "caddy", "caddy") },
		command: func(program, _ string) *exec.Cmd { return exec.Command(program, "run", "--config", "Caddyfile") },
	},
	{
		folder: "haproxy", away: 503, wrong: 503, opens: true, left: true, unix: "unix@",
		program: func(t *testing.T) string { t.Helper(); return dbtest.Program(t, "haproxy", "haproxy") },
		command: func(program, _ string) *exec.Cmd { return exec.Command(program, "-db", "-f", "haproxy.cfg") },
	},
	{
		folder: "traefik", away: 500, wrong: 401, patient: true,
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

// limited is how many requests of a client may pass.
const limited = 20

// site is a proxy with the application behind it and the Headgate that it asks.
type site struct {
	url         string
	application *recorder
	asked       *recorder // of Headgate
	headgate    *edge.Server
	addr        string // of Headgate
	limiter     *headgate.Limiter
}

// recorder keeps the headers of the requests that a handler gets.
type recorder struct {
	handler http.Handler
	mu      sync.Mutex
	headers []http.Header // guarded by mu
}

// ServeHTTP implements http.Handler.
func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	r.headers = append(r.headers, req.Header.Clone())
	r.mu.Unlock()
	r.handler.ServeHTTP(w, req)
}

// take returns the headers and forgets them.
func (r *recorder) take() []http.Header {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.headers
	r.headers = nil
	return taken
}

// echo is an application that knows nothing of limits. It answers with the body of a request, and with
// 403 or 500 where asked to.
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

// setting has what differs between sites.
type setting struct {
	open  bool   // requests pass while Headgate is away
	token string // that Headgate wants; empty: the one that the proxy shows
	away  bool   // the time limits are those of the configuration; else a slow machine has more time
	unix  bool   // Headgate listens on a Unix socket, and the proxy shows no token
	rules string // of the config file, which decide in the place of the query; empty: the query does
}

// newSite starts a proxy from its configuration, with the addresses of it replaced as README.md says, and
// a Headgate that wants its token.
func newSite(t *testing.T, p *proxy, set setting) *site {
	t.Helper()
	program := p.program(t)
	s := &site{application: &recorder{handler: echo}}
	application := dbtest.Listen(t, freeAddress(t))
	go func() { _ = http.Serve(application, s.application) }()

	c, err := config.Parse("headgate.yaml", fmt.Appendf(nil, "limits:\n  api: sliding-log %d/1h\n%s", limited, set.rules))
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(nil)
	t.Cleanup(func() { store.Close() })
	s.limiter = headgate.New(store, &headgate.Config{Names: c, Timeout: time.Minute})
	log := slog.New(slog.DiscardHandler)
	access := &rest.Config{Tokens: tokens(t, cmp.Or(set.token, token))}
	s.asked = &recorder{handler: rest.New(service.New(s.limiter, c, nil), log, access)}
	s.headgate = edge.NewServer(s.asked, log, &edge.Config{Proxied: rest.Proxied()})
	s.addr = freeAddress(t) // which no other test takes when it is stopped
	listener := dbtest.Listen(t, s.addr)
	asked := s.addr // as the proxy writes it
	if set.unix {
		dir, err := os.MkdirTemp("", "headgate") // whose name is short, as that of a socket has to be
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if listener, err = net.Listen("unix", filepath.Join(dir, "s")); err != nil {
			t.Fatal(err)
		}
		asked = p.unix + filepath.Join(dir, "s")
	}
	go func() { _ = s.headgate.Serve(listener) }()
	t.Cleanup(func() { s.headgate.Close() })

	shown := token
	if set.unix {
		shown = ""
	}
	addr := freeAddress(t)
	dir := copyFolder(t, p.folder, set, shown, map[string]string{
		"127.0.0.1:8080": asked, "127.0.0.1:8081": application.Addr().String(), "8000": addr[len("127.0.0.1:"):],
	}, strings.NewReplacer(append(byRules(set), "abns@headgate", "abns@headgate-"+addr)...)) // of the whole machine
	start := func() *exec.Cmd {
		cmd := p.command(program, dir)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "HEADGATE_TOKEN="+shown, "HOME="+dir, "XDG_DATA_HOME="+dir,
			"XDG_CONFIG_HOME="+dir, "CADDY_ADMIN="+freeAddress(t))
		return cmd
	}
	s.url = "http://" + addr
	dbtest.Start(t, start, func() error {
		res, err := http.Get(s.url + "/")
		if err == nil {
			if res.Body.Close(); res.StatusCode == http.StatusNotFound { // it has not read everything yet
				err = fmt.Errorf("status %d", res.StatusCode)
			}
		}
		return err
	})
	s.reset(t)
	return s
}

// tokens returns a file with one token, which may charge the limits whose names begin with api.
func tokens(t *testing.T, token string) *auth.File {
	t.Helper()
	text, err := auth.Text([]auth.Entry{
		{Name: "proxy", Role: "take", Limits: []string{"api*"}, Hashes: []string{auth.Hash(token)}},
	})
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, string(text))
	file, err2 := auth.Open(path)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return file
}

// copyFolder copies the files of a proxy with other addresses. All of these must stand in them.
func copyFolder(t *testing.T, name string, set setting, token string, addresses map[string]string,
	more *strings.Replacer,
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
		if set.open {
			text = opened(text)
		}
		if !set.away {
			text = timeLimit.ReplaceAllString(text, "60s")
		}
		var pairs []string
		for from, to := range addresses {
			if strings.Contains(text, from) {
				delete(missing, from)
			}
			pairs = append(pairs, from, to)
		}
		text = more.Replace(strings.NewReplacer(pairs...).Replace(text))
		if name == "nginx" { // what a user who is not root cannot write to stands elsewhere
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

// timeLimit is how long a proxy waits for Headgate.
var timeLimit = regexp.MustCompile(`\b[12]s\b`)

// freeAddress returns an address that no other test takes, also when nobody listens there any more.
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

// opened does what a configuration says about letting requests pass while Headgate is away.
func opened(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasSuffix(line, "closed\n") {
			line = strings.Replace(line, "#open ", "", 1)
			lines = append(lines, strings.Replace(line, "away_passes = false", "away_passes = true", 1))
		}
	}
	return strings.Join(lines, "")
}

// reset forgets what the client has used, and what was recorded.
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
	s.asked.take()
}

// stop ends Headgate, and the connections to it.
func (s *site) stop() { s.headgate.Close() }

// silence lets a Headgate that was stopped accept requests and say nothing. It returns how many there are.
func (s *site) silence(t *testing.T) (asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	l := dbtest.Listen(t, s.addr)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				for r := bufio.NewReader(c); ; asked.Add(1) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
				}
			}()
		}
	}()
	return asked
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

// ask sends a request of an end user with headers such as "Origin: null".
func (s *site) ask(method, path, body string, headers ...string) (answer, error) {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, from)
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
