package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
)

// inProcess runs the command in this process.
func inProcess(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = runMain(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

// newToken makes a token in a file.
func newToken(t *testing.T, file, name string, args ...string) string {
	t.Helper()
	code, token, said := inProcess(t, append([]string{"token", "new", name, "--tokens", file}, args...)...)
	if code != 0 || !strings.HasPrefix(token, "hgt_") {
		t.Fatalf("token new %s: %d %q %s", name, code, token, said)
	}
	return strings.TrimSpace(token)
}

// status posts a charge with a token, and returns the status and the body.
func status(t *testing.T, client *http.Client, url, token string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url,
		strings.NewReader(`{"limit":"token-bucket 100000/1h","key":"k"}`))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// serveUntilExit runs a server in this process that must not be able to start. If it starts, it ends with code 0.
func serveUntilExit(t *testing.T, args ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	var out output
	code = runMain(ctx, append([]string{"serve", "--http", "127.0.0.1:0"}, args...), nil, &out, &out)
	return code, out.String()
}

func TestTokensAreReplacedWithoutARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	first := newToken(t, file, "web", "--role", "take")
	s := start(t, dir, "--tokens", file, "--store", "memory:")
	client := &http.Client{}
	defer client.CloseIdleConnections()
	take := func(token string) int { code, _ := status(t, client, s.url+"/v1/take", token); return code }
	if got := take(first); got != 200 {
		t.Errorf("with its token: %d", got)
	}
	if got := take(""); got != 401 {
		t.Errorf("without a token: %d", got)
	}
	if got, text := status(t, client, s.url+"/v1/reset", first); got != 403 {
		t.Errorf("an admin action by the role take: %d %s", got, text)
	}
	second := newToken(t, file, "web", "--another")
	s.waitUntil(t, "that the second token is accepted", func() bool { return take(second) == 200 })
	if got := take(first); got != 200 {
		t.Errorf("with the first of two tokens: %d", got)
	}
	// Remove the first hash.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if strings.Contains(line, "sha256:") {
			lines = append(lines[:i], lines[i+1:]...)
			break
		}
	}
	write(t, file, strings.Join(lines, "\n"))
	s.waitUntil(t, "that the first token is refused", func() bool { return take(first) == 401 })
	if got := take(second); got != 200 {
		t.Errorf("with the second token: %d", got)
	}
	// An invalid file changes nothing, and /readyz and the log report it.
	write(t, file, "callers: [{name: web, role: root}]")
	s.waitUntil(t, "what is wrong with the file", func() bool {
		res, err := client.Get(s.url + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		// Without a token of the role read, /readyz does not say what is wrong.
		return res.StatusCode == http.StatusOK && strings.Contains(string(text), "something is wrong with it") &&
			strings.Contains(s.out.String(), `role \"root\" is not known`)
	})
	if got := take(second); got != 200 {
		t.Errorf("after a file that is wrong: %d", got)
	}
	code, out, said := inProcess(t, "take", "token-bucket 100000/1h", "k", "--server", s.url, "--token", second)
	if code != exitOK {
		t.Errorf("the command: %d %s %s", code, out, said)
	}
	if code, _, said := inProcess(t, "take", "token-bucket 100000/1h", "k", "--server", s.url); code != exitError ||
		!strings.Contains(said, "token") {
		t.Errorf("the command without a token: %d %s", code, said)
	}
}

func TestAddressesOfTheServer(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hg") // the path of a socket has about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "admin.sock")
	file := filepath.Join(dir, "tokens.yaml")
	admin := newToken(t, file, "op", "--role", "admin")
	stale, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()
	s := start(t, dir, "--tokens", file, "--store", "memory:", "--admin", "unix:"+socket, "--metrics", "127.0.0.1:0")
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if got, text := status(t, client, s.url+"/v1/reset", admin); got != 403 || !strings.Contains(text, "address of its own") {
		t.Errorf("an admin action on --http: %d %s", got, text)
	}
	local := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer local.CloseIdleConnections()
	if got, text := status(t, local, "http://localhost/v1/reset", ""); got != 200 {
		t.Errorf("an admin action on the socket: %d %s", got, text)
	}
	for server, want := range map[string]int{"unix:" + socket: exitOK, "unix:" + socket + "x": exitError, "unix:": exitError} {
		code, out, said := inProcess(t, "block", "k", "token-bucket 1/1h", "--for", "1h", "--server", server)
		if code != want {
			t.Errorf("the command by %s: %d %s %s", server, code, out, said)
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	s.waitUntil(t, "the audit", func() bool {
		return strings.Contains(s.out.String(), `msg="admin action" verb=reset`)
	})
	_, rest, _ := strings.Cut(s.out.String(), "metrics is on ")
	metrics, _, _ := strings.Cut(rest, "\n")
	res, err := client.Get("http://" + metrics + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if got, _ := status(t, client, "http://"+metrics+"/v1/take", admin); res.StatusCode != http.StatusOK || got != 404 {
		t.Errorf("the address for metrics: %d for /readyz, %d for /v1/take", res.StatusCode, got)
	}
	if code, said := serveUntilExit(t, "--store", "memory:", "--admin", "unix:"+socket); code != exitError ||
		!strings.Contains(said, "in use by another process") {
		t.Errorf("a second server on the socket ends with %d, and says %q", code, said)
	}
	s.stop(t)
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there after the end")
	}
}

func TestAnAddressThatOthersReachNeedsAccessControl(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	newToken(t, file, "web", "--role", "take")
	for _, tt := range []struct {
		args string
		says string
	}{
		{"--http 0.0.0.0:0", "set tokens or tls_client_ca, or open"},
		{"--http :0", "can be reached from other machines"},
		{"--admin :0", "admin: [::]"},
		{"--open --tokens " + file, "stands beside tokens"},
		{"--tls-cert x", "stand together"},
		{"--tls-client-ca x", "needs tls_cert"},
		{"--tls-cert x --tls-key y", "no such file"},
		{"--tokens none.yaml", "no such file"},
		{"--http unix:", "names no socket"},
		{"--http unix:" + file, "is not a socket"},
	} {
		args := append([]string{"--store", "memory:"}, strings.Fields(tt.args)...)
		if code, said := serveUntilExit(t, args...); code != exitError || !strings.Contains(said, tt.says) {
			t.Errorf("%s: %d, %q", tt.args, code, said)
		}
	}
	for _, args := range []string{"--http :0 --open", "--http :0 --tokens " + file, "--http 127.0.0.1:0 --metrics :0"} {
		s := start(t, dir, append([]string{"--store", "memory:"}, strings.Fields(args)...)...)
		if warned := strings.Contains(s.stop(t), "anyone who reaches"); warned != strings.Contains(args, "--open") {
			t.Errorf("%s: %q", args, s.out.String())
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ours, others := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	server := ours.Issue(t, dbtest.Certificate{Name: "server", Hosts: []string{"127.0.0.1"}})
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(ours.File)
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	with := func(pair *dbtest.Pair) *http.Client {
		c := &tls.Config{RootCAs: roots}
		if pair != nil {
			cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
			if err != nil {
				t.Fatal(err)
			}
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		t.Cleanup(client.CloseIdleConnections)
		return client
	}
	sign := func(a *dbtest.Authority, c dbtest.Certificate) *dbtest.Pair { pair := a.Issue(t, c); return &pair }
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	install := func(p dbtest.Pair) {
		for to, from := range map[string]string{key: p.Key, cert: p.Cert} {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			write(t, to, string(text))
		}
	}
	install(server)
	file := filepath.Join(dir, "tokens.yaml")
	write(t, file, "callers: [{name: web, role: take, certificates: [web]}]")
	token := newToken(t, file, "tool", "--role", "take")
	args := []string{"--store", "memory:", "--http", ":0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ours.File}
	only := start(t, dir, args...)
	both := start(t, dir, append(args, "--tokens", file)...)
	web, stranger := sign(ours, dbtest.Certificate{Name: "web"}), sign(ours, dbtest.Certificate{Name: "stranger"})
	foreign, expired := sign(others, dbtest.Certificate{Name: "web"}), sign(ours, dbtest.Certificate{Name: "web", Expired: true})
	for _, tt := range []struct {
		name       string
		pair       *dbtest.Pair
		token      string
		only, both int // 0: no connection
	}{
		{"listed", web, "", 200, 200},
		{"not listed", stranger, "", 200, 401},
		{"of another authority", foreign, "", 0, 0},
		{"expired", expired, "", 0, 0},
		{"none", nil, "", 0, 401},
		{"none, with a token", nil, token, 0, 200},
		{"not listed, with a token", stranger, token, 200, 200},
	} {
		client := with(tt.pair)
		for s, want := range map[*namedServer]int{
			{only, "only certificates"}: tt.only, {both, "certificates or tokens"}: tt.both,
		} {
			url := strings.Replace(s.url, "[::]", "127.0.0.1", 1)
			if got, text := status(t, client, url+"/v1/take", tt.token); got != want {
				t.Errorf("%s, %s: status %d, want %d: %s", tt.name, s.name, got, want, text)
			}
		}
	}
	both.waitUntil(t, "what is wrong with certificates", func() bool { // a line may come after its answer
		return strings.Contains(both.out.String(), "no TLS with a client")
	})

	// A certificate that is replaced is used for new connections, without a restart.
	serial := func() string {
		c := &tls.Config{RootCAs: roots}
		pair, err := tls.LoadX509KeyPair(web.Cert, web.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(only.url, "https://"))
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			return fmt.Sprint(err) // while one file of two was replaced
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := serial(); got != "server" {
		t.Errorf("the first certificate: %s", got)
	}
	install(ours.Issue(t, dbtest.Certificate{Name: "renewed", Hosts: []string{"127.0.0.1"}}))
	only.waitUntil(t, "the renewed certificate", func() bool { return serial() == "renewed" })
	write(t, cert, "nonsense")
	only.waitUntil(t, "what is wrong", func() bool { return strings.Contains(only.out.String(), "stays in force") })
	if got := serial(); got != "renewed" {
		t.Errorf("after a file that is wrong: %s", got)
	}
}

// namedServer is a server with a name for error messages.
type namedServer struct {
	*server
	name string
}

func TestTokenCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	token := newToken(t, file, "web", "--role", "take", "--limits", "api*,login")
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), token) {
		t.Errorf("%v, the file is\n%s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	newToken(t, file, "op", "--role", "admin")
	newToken(t, file, "web", "--another")
	code, out, _ := inProcess(t, "token", "list", "--tokens", file)
	want := "web                   take   2 tokens, 0 certificates  api* login\n" +
		"op                    admin  1 tokens, 0 certificates  all limits\n"
	if code != 0 || out != want {
		t.Errorf("list: %d\n%s", code, out)
	}
	before, _ := os.ReadFile(file)
	for args, says := range map[string]string{
		"token new web --role take --tokens " + file:           "--another makes one more",
		"token new x --another --tokens " + file:               "is not in the file",
		"token new web --another --role take --tokens " + file: "stands alone",
		"token new x --tokens " + file:                         "role: is missing",
		"token new x --role root --tokens " + file:             "is not known",
		"token new X/y --role take --tokens " + file:           "name: must be",
		"token remove x --tokens " + file:                      "is not in",
		"token list":                                           "tokens: is missing",
		"token list --tokens none.yaml":                        "no such file",
	} {
		if code, out, said := inProcess(t, strings.Fields(args)...); code != exitError || out != "" || !strings.Contains(said, says) {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, said, says)
		}
	}
	if after, _ := os.ReadFile(file); !bytes.Equal(before, after) {
		t.Errorf("commands that failed have changed the file:\n%s", after)
	}
	if code, out, _ := inProcess(t, "token", "remove", "web", "--tokens", file); code != 0 || out != "removed  web\n" {
		t.Errorf("remove: %d %q", code, out)
	}
	code, out, said := inProcess(t, "token", "new", "ci", "--role", "read")
	if code != 0 || !strings.HasPrefix(out, "hgt_") || !strings.Contains(said, "name: ci") || strings.Contains(said, out) {
		t.Errorf("without a file: %d %q %q", code, out, said)
	}
}
