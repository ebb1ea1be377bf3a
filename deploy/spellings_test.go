package deploy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// spellingsFile has the answers of servers to spellings of /login. UPDATE_SPELLINGS=1 writes it again.
const spellingsFile = "../internal/server/rules/testdata/spellings.tsv"

// spellings are request targets that some server might take for /login.
var spellings = []string{
	"/login", "/login/", "//login", "///login", "/./login", "/x/../login", "/%2e/login", "/x/%2e%2e/login",
	"/x/.%2E/login", "/%6cogin", "/%6Cogin", "/lo%67in", "/%256cogin", "/LOGIN", "/login;x", "/login;x=1",
	"/login%3bx", "/;x/login", "/..;/login", "/x/..;/login", "/x/..%3b/login", "/login#", "/login#x",
	"/login%23x", "/login?", "/login?x=1", "/login%3fx=1", "/login%20", "/login+", "/login.", "/login%2e",
	"/login%00", "/login%0a", "/login%09", "/lo%09gin", "/login%2f", "/login%2F", "/%2flogin", "/x%2f..%2flogin",
	"/x/..%2flogin", "/x%2f../login", "/login%252f", "/login/.", "/login/..", "/login/../login", `/x\..\login`,
	`/\login`, "/%5clogin", "/x/..%5clogin", "/login%5c", "/login%c0%af", "/login%", "/login%zz", "/login.json",
	"http://h/login", "http://h//login", "//h/login", "/login~", "/login%7f", "/login%c3%a9", "/login%ff",
}

// webServers answer "login" to targets that they take for /login or /login/, and "other" to all others.
var webServers = []struct {
	name    string
	command func(t *testing.T, dir string, port int) *exec.Cmd
}{
	{"nginx 1.22", func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "nginx.conf", fmt.Sprintf(`events {}
http { access_log off; server { listen 127.0.0.1:%d;
	location = /login { return 200 login; }
	location = /login/ { return 200 login; }
	location / { return 200 other; } } }`, port))
		return exec.Command(dbtest.Program(t, "nginx", "nginx-light"), "-p", dir,
			"-c", filepath.Join(dir, "nginx.conf"),
			"-e", filepath.Join(dir, "error.log"),
			"-g", "daemon off; master_process off; pid "+filepath.Join(dir, "pid")+";")
	}},
	{"caddy 2.6", func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "Caddyfile", fmt.Sprintf("{\n\tadmin off\n\tauto_https off\n}\nhttp://:%d {\n\tbind 127.0.0.1\n"+
			"\t@login path /login /login/\n\thandle @login {\n\t\trespond login\n\t}\n\trespond other\n}\n", port))
		cmd := exec.Command(dbtest.Program(t, "caddy", "caddy"), "run", "--config", filepath.Join(dir, "Caddyfile"))
		cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		return cmd
	}},
	{"haproxy 2.6", func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "haproxy.cfg", fmt.Sprintf(`defaults
	mode http
	timeout client 5s
	timeout server 5s
	timeout connect 5s
frontend f
	bind 127.0.0.1:%d
	http-request return status 200 content-type text/plain string login if { path /login /login/ }
	http-request return status 200 content-type text/plain string other
`, port))
		return exec.Command(dbtest.Program(t, "haproxy", "haproxy"), "-db", "-f", filepath.Join(dir, "haproxy.cfg"))
	}},
	{"node 20 URL", nodeServer("new URL(req.url, 'http://h').pathname")},
	{"node 20 url.parse", nodeServer("require('url').parse(req.url).pathname")},
	{"go 1.26 ServeMux", func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "main.go", fmt.Sprintf(`package main

import (
	"io"
	"net/http"
)

func main() {
	say := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
	}
	http.HandleFunc("/login", say("login"))
	http.HandleFunc("/login/{$}", say("login"))
	http.HandleFunc("/", say("other"))
	panic(http.ListenAndServe("127.0.0.1:%d", nil))
}
`, port))
		program := filepath.Join(dir, "server")
		build := exec.Command("go", "build", "-o", program, filepath.Join(dir, "main.go"))
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return exec.Command(program)
	}},
	{"python 3.11 http.server", func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "server.py", fmt.Sprintf(`import http.server, urllib.parse
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        text = b"login" if path in ("/login", "/login/") else b"other"
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *args): pass
http.server.HTTPServer(("127.0.0.1", %d), H).serve_forever()
`, port))
		return exec.Command(dbtest.Program(t, "python3", "python3"), filepath.Join(dir, "server.py"))
	}},
}

// nodeServer returns the start of a server in Node that takes the path of a request from a JavaScript expression.
func nodeServer(path string) func(t *testing.T, dir string, port int) *exec.Cmd {
	return func(t *testing.T, dir string, port int) *exec.Cmd {
		writeFile(t, dir, "server.js", fmt.Sprintf(`require("http").createServer((req, res) => {
	let path;
	try { path = %s; } catch (err) { res.statusCode = 500; return res.end(); }
	res.end(path === "/login" || path === "/login/" ? "login" : "other");
}).listen(%d, "127.0.0.1");
`, path, port))
		return exec.Command(dbtest.Program(t, "node", "nodejs"), filepath.Join(dir, "server.js"))
	}
}

func writeFile(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestServersNormalizeSpellings requests each spelling from real servers, and compares the answers with the table that
// the tests of the rules use.
func TestServersNormalizeSpellings(t *testing.T) {
	tier.Engines(t)
	var table bytes.Buffer
	table.WriteString("spelling")
	answers := make([][]string, len(webServers))
	for i, s := range webServers {
		table.WriteString("\t" + s.name)
		dir, port := t.TempDir(), dbtest.FreePort(t)
		cmd := s.command(t, dir, port)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		await.Until(t, s.name+" to answer", func() bool { return answerTo(addr, "/login") == "login" })
		for _, spelling := range spellings {
			answers[i] = append(answers[i], answerTo(addr, spelling))
		}
	}
	table.WriteString("\n")
	for j, spelling := range spellings {
		table.WriteString(spelling)
		for i := range webServers {
			table.WriteString("\t" + answers[i][j])
		}
		table.WriteString("\n")
	}
	if os.Getenv("UPDATE_SPELLINGS") != "" {
		if err := os.WriteFile(spellingsFile, table.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(spellingsFile)
	if err != nil || !bytes.Equal(want, table.Bytes()) {
		t.Errorf("%s differs from the answers of these servers (UPDATE_SPELLINGS=1 writes it): %v\n%s", spellingsFile, err, &table)
	}
}

// answerTo returns the answer of a server to a target: login, other, or a status that is not 200.
func answerTo(addr, target string) string {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return "no answer"
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", target)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "no answer"
	}
	defer res.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(res.Body); err != nil {
		return "no answer"
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Sprint(res.StatusCode)
	}
	return strings.TrimSpace(body.String())
}
