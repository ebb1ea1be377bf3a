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

// runArgs runs the command in this process.
func runArgs(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = runMain(t.Context(), args, strings.NewReader(""), &out, &errOut)
	return code, out.String(), errOut.String()
}

// newToken makes a token in a file, and returns it.
func newToken(t *testing.T, file, name string, args ...string) string {
	t.Helper()
	code, token, stderr := runArgs(t, append([]string{"token", "new", name, "--tokens", file}, args...)...)
	if code != 0 || !strings.HasPrefix(token, "hgt_") {
		t.Fatalf("token new %s: %d %q %s", name, code, token, stderr)
	}
	return strings.TrimSpace(token)
}

// postCharge posts a charge with a token, and returns the status and the body: 0 and the error if there is no answer.
func postCharge(t *testing.T, client *http.Client, url, token string) (status int, body string) {
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

// serveUntilExit runs a server in this process that must not start. If it does, it ends with 0 after await.Patience.
func serveUntilExit(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	var out outputBuffer
	code = runMain(ctx, append([]string{"serve", "--http", "127.0.0.1:0"}, args...), nil, &out, &out)
	return code, out.String()
}

func TestTokensFileIsReloaded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	firstToken := newToken(t, file, "web", "--role", "take")
	s := start(t, dir, "--tokens", file, "--store", "memory:")
	client := &http.Client{}
	defer client.CloseIdleConnections()
	take := func(token string) int { status, _ := postCharge(t, client, s.url+"/v1/take", token); return status }
	if got := take(firstToken); got != 200 {
		t.Errorf("with the token: %d, want 200", got)
	}
	if got := take(""); got != 401 {
		t.Errorf("without a token: %d, want 401", got)
	}
	if got, text := postCharge(t, client, s.url+"/v1/reset", firstToken); got != 403 {
		t.Errorf("an admin action by the role take: %d %s, want 403", got, text)
	}
	secondToken := newToken(t, file, "web", "--another")
	s.waitUntil(t, "that the second token is accepted", func() bool { return take(secondToken) == 200 })
	if got := take(firstToken); got != 200 {
		t.Errorf("with the first of two tokens: %d, want 200", got)
	}
	// The first hash is removed from the file.
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
	replaceFile(t, file, strings.Join(lines, "\n"))
	s.waitUntil(t, "that the first token is refused", func() bool { return take(firstToken) == 401 })
	if got := take(secondToken); got != 200 {
		t.Errorf("with the second token: %d, want 200", got)
	}
	// An invalid file changes nothing, and /readyz and the log report it.
	replaceFile(t, file, "callers: [{name: web, role: root}]")
	s.waitUntil(t, "the error of the file", func() bool {
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
	if got := take(secondToken); got != 200 {
		t.Errorf("after an invalid file: %d, want 200", got)
	}
	takeArgs := []string{"take", "token-bucket 100000/1h", "k", "--server", s.url}
	code, out, stderr := runArgs(t, append(takeArgs, "--token", secondToken)...)
	if code != exitOK {
		t.Errorf("take with the token: exit %d, want 0; %s %s", code, out, stderr)
	}
	if code, _, stderr := runArgs(t, takeArgs...); code != exitError || !strings.Contains(stderr, "token") {
		t.Errorf("take without a token: exit %d, want 2; %s", code, stderr)
	}
}

func TestAdminSocketAndMetricsAddress(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "hg") // the path of a socket may have about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "admin.sock")
	file := filepath.Join(dir, "tokens.yaml")
	adminToken := newToken(t, file, "op", "--role", "admin")
	staleListener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	staleListener.(*net.UnixListener).SetUnlinkOnClose(false)
	staleListener.Close()
	s := start(t, dir, "--tokens", file, "--store", "memory:", "--admin", "unix:"+socket, "--metrics", "127.0.0.1:0")
	client := &http.Client{}
	defer client.CloseIdleConnections()
	if got, text := postCharge(t, client, s.url+"/v1/reset", adminToken); got != 403 ||
		!strings.Contains(text, "address of its own") {
		t.Errorf("an admin action on --http: %d %s, want 403", got, text)
	}
	socketClient := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}
	defer socketClient.CloseIdleConnections()
	if got, text := postCharge(t, socketClient, "http://localhost/v1/reset", ""); got != 200 {
		t.Errorf("an admin action on the socket: %d %s, want 200", got, text)
	}
	for place, want := range map[string]int{
		"unix:" + socket: exitOK, "unix:" + socket + "x": exitError, "unix:": exitError,
	} {
		code, out, stderr := runArgs(t, "block", "k", "token-bucket 1/1h", "--for", "1h", "--server", place)
		if code != want {
			t.Errorf("block through %s: exit %d, want %d; %s %s", place, code, want, out, stderr)
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("the socket has %v, %v, want mode 0660", info, err)
	}
	s.waitUntil(t, "the audit", func() bool {
		return strings.Contains(s.out.String(), `msg="admin action" verb=reset`)
	})
	_, rest, _ := strings.Cut(s.out.String(), "metrics is on ")
	metricsAddr, _, _ := strings.Cut(rest, "\n")
	res, err := client.Get("http://" + metricsAddr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	got, _ := postCharge(t, client, "http://"+metricsAddr+"/v1/take", adminToken)
	if res.StatusCode != http.StatusOK || got != 404 {
		t.Errorf("the address for metrics: %d for /readyz, %d for /v1/take, want 200 and 404", res.StatusCode, got)
	}
	if code, output := serveUntilExit(t, "--store", "memory:", "--admin", "unix:"+socket); code != exitError ||
		!strings.Contains(output, "in use by another process") {
		t.Errorf("a second server on the socket ends with %d, and says %q", code, output)
	}
	s.stop(t)
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is still there after the end")
	}
}

func TestServeRefusesInvalidAccessSettings(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	newToken(t, file, "web", "--role", "take")
	for _, tt := range []struct {
		args     string
		wantText string
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
		if code, output := serveUntilExit(t, args...); code != exitError || !strings.Contains(output, tt.wantText) {
			t.Errorf("%s: got exit %d, %q, want %d, %q", tt.args, code, output, exitError, tt.wantText)
		}
	}
	for _, args := range []string{"--http :0 --open", "--http :0 --tokens " + file, "--http 127.0.0.1:0 --metrics :0"} {
		s := start(t, dir, append([]string{"--store", "memory:"}, strings.Fields(args)...)...)
		if warned := strings.Contains(s.stop(t), "anyone who reaches"); warned != strings.Contains(args, "--open") {
			t.Errorf("%s: got %q, want a warning only with --open", args, s.out.String())
		}
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority, otherAuthority := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	serverCert := authority.Issue(t, dbtest.Certificate{Name: "server", Hosts: []string{"127.0.0.1"}})
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(authority.File)
	if err != nil || !roots.AppendCertsFromPEM(pem) {
		t.Fatal(err)
	}
	newClient := func(pair *dbtest.Pair) *http.Client {
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
	issue := func(a *dbtest.Authority, c dbtest.Certificate) *dbtest.Pair { pair := a.Issue(t, c); return &pair }
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	install := func(p dbtest.Pair) {
		for to, from := range map[string]string{keyFile: p.Key, certFile: p.Cert} {
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			replaceFile(t, to, string(text))
		}
	}
	install(serverCert)
	file := filepath.Join(dir, "tokens.yaml")
	replaceFile(t, file, "callers: [{name: web, role: take, certificates: [web]}]")
	token := newToken(t, file, "tool", "--role", "take")
	args := []string{
		"--store", "memory:", "--http", ":0", "--tls-cert", certFile, "--tls-key", keyFile,
		"--tls-client-ca", authority.File,
	}
	certOnly := start(t, dir, args...)
	certOrToken := start(t, dir, append(args, "--tokens", file)...)
	webCert := issue(authority, dbtest.Certificate{Name: "web"})
	guestCert := issue(authority, dbtest.Certificate{Name: "stranger"})
	foreignCert := issue(otherAuthority, dbtest.Certificate{Name: "web"})
	expiredCert := issue(authority, dbtest.Certificate{Name: "web", Expired: true})
	for _, tt := range []struct {
		name                          string
		pair                          *dbtest.Pair
		token                         string
		wantCertOnly, wantCertOrToken int // 0: no connection
	}{
		{"listed", webCert, "", 200, 200},
		{"not listed", guestCert, "", 200, 401},
		{"of another authority", foreignCert, "", 0, 0},
		{"expired", expiredCert, "", 0, 0},
		{"none", nil, "", 0, 401},
		{"none, with a token", nil, token, 0, 200},
		{"not listed, with a token", guestCert, token, 200, 200},
	} {
		client := newClient(tt.pair)
		for s, want := range map[*server]int{certOnly: tt.wantCertOnly, certOrToken: tt.wantCertOrToken} {
			url := strings.Replace(s.url, "[::]", "127.0.0.1", 1)
			if got, text := postCharge(t, client, url+"/v1/take", tt.token); got != want {
				t.Errorf("%s, with tokens %v: status %d, want %d: %s", tt.name, s == certOrToken, got, want, text)
			}
		}
	}
	certOrToken.waitUntil(t, "the errors of certificates in the log", func() bool { // a line may come after the answer
		return strings.Contains(certOrToken.out.String(), "no TLS with a client")
	})
	// A certificate that is replaced is used for new connections, without a restart. servedName returns its name.
	servedName := func() string {
		c := &tls.Config{RootCAs: roots}
		pair, err := tls.LoadX509KeyPair(webCert.Cert, webCert.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
		_, port, _ := net.SplitHostPort(strings.TrimPrefix(certOnly.url, "https://"))
		conn, err := (&tls.Dialer{Config: c}).DialContext(t.Context(), "tcp", "127.0.0.1:"+port)
		if err != nil {
			return fmt.Sprint(err) // while only one of the two files is replaced
		}
		defer conn.Close()
		return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := servedName(); got != "server" {
		t.Errorf("the first certificate is %s, want server", got)
	}
	install(authority.Issue(t, dbtest.Certificate{Name: "renewed", Hosts: []string{"127.0.0.1"}}))
	certOnly.waitUntil(t, "the renewed certificate", func() bool { return servedName() == "renewed" })
	replaceFile(t, certFile, "nonsense")
	certOnly.waitUntil(t, "the error of the certificate",
		func() bool { return strings.Contains(certOnly.out.String(), "stays in force") })
	if got := servedName(); got != "renewed" {
		t.Errorf("after an invalid file the certificate is %s, want renewed", got)
	}
}

func TestTokenCommands(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	token := newToken(t, file, "web", "--role", "take", "--limits", "api*,login")
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), token) {
		t.Errorf("%v, the file has the token:\n%s", err, text)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has %v, %v, want mode 0600", info, err)
	}
	newToken(t, file, "op", "--role", "admin")
	newToken(t, file, "web", "--another")
	code, out, _ := runArgs(t, "token", "list", "--tokens", file)
	want := "web                   take   2 tokens, 0 certificates  api* login\n" +
		"op                    admin  1 tokens, 0 certificates  all limits\n"
	if code != 0 || out != want {
		t.Errorf("list: exit %d, got\n%s, want\n%s", code, out, want)
	}
	oldText, _ := os.ReadFile(file)
	for args, wantText := range map[string]string{
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
		if code, out, stderr := runArgs(t, strings.Fields(args)...); code != exitError || out != "" || !strings.Contains(stderr, wantText) {
			t.Errorf("%s: %d %q %q, want %q", args, code, out, stderr, wantText)
		}
	}
	if newText, _ := os.ReadFile(file); !bytes.Equal(oldText, newText) {
		t.Errorf("commands that failed have changed the file:\n%s", newText)
	}
	if code, out, _ := runArgs(t, "token", "remove", "web", "--tokens", file); code != 0 || out != "removed  web\n" {
		t.Errorf("remove: exit %d, %q", code, out)
	}
	code, out, stderr := runArgs(t, "token", "new", "ci", "--role", "read")
	if code != 0 || !strings.HasPrefix(out, "hgt_") || !strings.Contains(stderr, "name: ci") || strings.Contains(stderr, out) {
		t.Errorf("without a file: exit %d, %q %q", code, out, stderr)
	}
}
