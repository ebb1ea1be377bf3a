package httplimit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store/memory"
)

// callerWaits are the waits of the refusals, in the order of the columns in docs/middleware.md.
var callerWaits = []string{"2s", "61s", "90m", "30d", "never"}

// universalAnswer has the members that each client reads.
const universalAnswer = `{"id":"1","object":"chat.completion","created":1,"model":"m","type":"message","role":"assistant",
"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn",
"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],
"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}],
"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"input_tokens":1,"output_tokens":1}}`

// callersServer limits each path CLIENT/WAIT/FIELDS by its own key, and counts the requests for it.
type callersServer struct {
	routes map[string]callersRoute // by WAIT/FIELDS
	mu     sync.Mutex
	counts map[string]int // by CLIENT/WAIT/FIELDS; guarded by mu
}

// callersRoute limits the requests of one wait and one kind of fields. That of the wait "0s" refuses none.
type callersRoute struct {
	limiter *headgate.Limiter
	limit   headgate.Limit
	limited http.Handler
}

func (s *callersServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(path) < 3 {
		http.NotFound(w, r)
		return
	}
	route, ok := s.routes[path[1]+"/"+path[2]]
	if !ok {
		http.NotFound(w, r)
		return
	}
	key := strings.Join(path[:3], "/")
	s.mu.Lock()
	s.counts[key]++
	isFirst := s.counts[key] == 1
	s.mu.Unlock()
	if isFirst { // use the limit up, so that already the first request of a client is refused
		if _, err := route.limiter.Allow(r.Context(), route.limit, key); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	r.SetPathValue("key", key)
	route.limited.ServeHTTP(w, r)
}

// newCallersServer returns a server for the fields "plain" and "stop", where X-Should-Retry is false above a minute.
// Except for the wait of 2 s the clock stands still, so that every refusal has the same wait, whatever the speed of
// the machine.
func newCallersServer(t *testing.T) *callersServer {
	c := &callersServer{routes: map[string]callersRoute{}, counts: map[string]int{}}
	liveLimiter := memoryLimiter()
	stillLimiter := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return 1_800_000_000_000_000 }}), nil)
	for fields, noRetryBeyond := range map[string]time.Duration{"plain": 0, "stop": httplimit.DefaultNoRetryBeyond} {
		for _, wait := range append([]string{"0s"}, callerWaits...) {
			route := callersRoute{limiter: stillLimiter}
			switch wait {
			case "2s":
				route.limiter, route.limit = liveLimiter, headgate.MustParseNamed("in-"+wait, "sliding-log 1/2s")
			case "0s":
				route.limit = headgate.MustParseNamed("in-"+wait, "unlimited")
			case "never":
				route.limit = headgate.MustParseNamed("in-"+wait, "0")
			default:
				route.limit = headgate.MustParseNamed("in-"+wait, "sliding-log 1/"+wait)
			}
			route.limited = mustHandler(t, route.limiter, httplimit.HandlerConfig{
				NoRetryBeyond: noRetryBeyond,
				Charges:       []httplimit.Charge{{Limit: route.limit, Key: httplimit.ByPathValue("key")}},
			})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, universalAnswer)
			}))
			c.routes[wait+"/"+fields] = route
		}
	}
	return c
}

// clientOutcome is what the caller of a client has Got when ten seconds are over, as testdata/callers prints it.
type clientOutcome struct{ Client, Wait, Fields, Path, Got string }

// TestClientsHandleARefusal has the middleware refuse clients of language models and of HTTP. It checks that
// docs/middleware.md has how many requests each client sends in ten seconds, and what its caller gets.
func TestClientsHandleARefusal(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	handler := newCallersServer(t)
	server := httptest.NewServer(handler)
	defer server.Close()
	outcomes := append(runNode(t, server.URL), runGo(t, server.URL)...)

	type client struct{ name, fields string }
	cells, clients := map[client]string{}, []client{} // the cells of a row, one for each wait
	handler.mu.Lock()
	for _, o := range outcomes {
		c := client{o.Client, o.Fields}
		if cells[c] == "" {
			clients = append(clients, c)
		}
		cells[c] += fmt.Sprintf(" | %d, %s", handler.counts[o.Path], o.Got)
	}
	handler.mu.Unlock()
	type row struct{ cells, fields string }
	names, rows := map[row]string{}, []row{} // clients with the same cells share a row
	for _, c := range clients {
		if c.fields == "stop" && cells[c] == cells[client{c.name, "plain"}] {
			continue // it does not obey X-Should-Retry
		}
		r := row{cells[c], c.fields}
		if names[r] == "" {
			rows = append(rows, r)
			names[r] = c.name
		} else {
			names[r] += ", " + c.name
		}
	}
	page, err := os.ReadFile("../docs/middleware.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		name := names[r]
		if r.fields == "stop" {
			name = "with `X-Should-Retry: false`: " + name
		}
		if line := "| " + name + r.cells + " |\n"; !bytes.Contains(page, []byte(line)) {
			t.Errorf("docs/middleware.md has no row\n%s", line)
		}
	}
}

// runNode runs the clients of npm, and curl, with the Node.js of testdata/callers.
func runNode(t *testing.T, serverURL string) []clientOutcome {
	modules := dbtest.NodeModules(t, "testdata/callers")
	node, err := filepath.Glob(filepath.Join(modules, "node-linux-*/bin/node"))
	if err != nil || len(node) != 1 {
		t.Fatalf("node-linux-*: %q, %v", node, err)
	}
	dbtest.Program(t, "curl", "curl")
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/callers/ask.mjs")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "ask.mjs"), text, 0o600)
	}
	if err == nil {
		err = os.Symlink(modules, filepath.Join(dir, "node_modules"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return runProgram(t, dir, serverURL, node[0], "ask.mjs")
}

// runGo runs the clients of Go, which have a module of their own.
func runGo(t *testing.T, serverURL string) []clientOutcome {
	program := filepath.Join(t.TempDir(), "callers")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = "testdata/callers", append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return runProgram(t, ".", serverURL, program)
}

// runProgram runs a program of testdata/callers, and parses the outcomes that it prints.
func runProgram(t *testing.T, dir, serverURL string, command ...string) (outcomes []clientOutcome) {
	args := append(append(command[1:], serverURL), callerWaits...)
	cmd := exec.CommandContext(t.Context(), command[0], args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &outcomes)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return outcomes
}
