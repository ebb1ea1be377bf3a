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

// callerWaits are the waits that clients are refused with, in the order of the columns.
var callerWaits = []string{"2s", "61s", "90m", "30d", "never"}

// answerToAll has what each client looks for in an answer.
const answerToAll = `{"id":"1","object":"chat.completion","created":1,"model":"m","type":"message","role":"assistant",
"content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn",
"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],
"candidates":[{"content":{"role":"model","parts":[{"text":"hi"}]},"finishReason":"STOP"}],
"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2,"input_tokens":1,"output_tokens":1}}`

// callersServer answers each path CLIENT/WAIT/FIELDS by a key of its own, and counts the requests for it.
type callersServer struct {
	routes map[string]callersRoute // by WAIT/FIELDS
	mu     sync.Mutex
	counts map[string]int // by CLIENT/WAIT/FIELDS; guarded by mu
}

// callersRoute is a wait, with fields.
type callersRoute struct {
	limiter *headgate.Limiter
	limit   headgate.Limit
	limited http.Handler
}

func (c *callersServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if len(path) < 3 {
		http.NotFound(w, r)
		return
	}
	route, ok := c.routes[path[1]+"/"+path[2]]
	if !ok {
		http.NotFound(w, r)
		return
	}
	key := strings.Join(path[:3], "/")
	c.mu.Lock()
	c.counts[key]++
	first := c.counts[key] == 1
	c.mu.Unlock()
	if first { // finds the whole wait before it
		if _, err := route.limiter.Allow(r.Context(), route.limit, key); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	r.SetPathValue("key", key)
	route.limited.ServeHTTP(w, r)
}

// newCallersServer returns a server with the fields "plain" and "stop", where X-Should-Retry is false above a minute. A
// wait of 2 s passes; of a longer one every refusal says the same, as when others take what becomes free. Else it
// would depend on the speed of the machine whether a second attempt has to wait for a second less.
func newCallersServer(t *testing.T) *callersServer {
	c := &callersServer{routes: map[string]callersRoute{}, counts: map[string]int{}}
	moving := memoryLimiter()
	still := headgate.New(memory.New(&memory.Config{Clock: func() int64 { return 1_800_000_000_000_000 }}), nil)
	for fields, beyond := range map[string]time.Duration{"plain": 0, "stop": httplimit.DefaultNoRetryBeyond} {
		for _, wait := range append([]string{"0s"}, callerWaits...) {
			route := callersRoute{limiter: still}
			switch wait {
			case "2s":
				route.limiter, route.limit = moving, headgate.MustParseNamed("in-"+wait, "sliding-log 1/2s")
			case "0s":
				route.limit = headgate.MustParseNamed("in-"+wait, "unlimited")
			case "never":
				route.limit = headgate.MustParseNamed("in-"+wait, "0")
			default:
				route.limit = headgate.MustParseNamed("in-"+wait, "sliding-log 1/"+wait)
			}
			route.limited = must(t, route.limiter, httplimit.HandlerConfig{
				NoRetryBeyond: beyond,
				Charges:       []httplimit.Charge{{Limit: route.limit, Key: httplimit.ByPathValue("key")}},
			})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, answerToAll)
			}))
			c.routes[wait+"/"+fields] = route
		}
	}
	return c
}

// called is what a client has made of a refusal within ten seconds, as the programs of testdata/callers print it.
type called struct{ Client, Wait, Fields, Path, Got string }

// TestClientsHandleARefusal lets clients of language models and of HTTP meet refusals of the middleware. The page
// has how many requests each sends in ten seconds, and what its caller gets.
func TestClientsHandleARefusal(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	c := newCallersServer(t)
	server := httptest.NewServer(c)
	defer server.Close()
	outcomes := append(runNode(t, server.URL), runGo(t, server.URL)...)

	type client struct{ name, fields string }
	cells, clients := map[client]string{}, []client{} // a cell for each wait
	c.mu.Lock()
	for _, o := range outcomes {
		of := client{o.Client, o.Fields}
		if cells[of] == "" {
			clients = append(clients, of)
		}
		cells[of] += fmt.Sprintf(" | %d, %s", c.counts[o.Path], o.Got)
	}
	c.mu.Unlock()
	rows, order := map[client]string{}, []client{} // names of clients that do the same
	for _, of := range clients {
		if of.fields == "stop" && cells[of] == cells[client{of.name, "plain"}] {
			continue // it does not obey
		}
		same := client{cells[of], of.fields}
		if rows[same] == "" {
			order = append(order, same)
			rows[same] = of.name
		} else {
			rows[same] += ", " + of.name
		}
	}
	page, err := os.ReadFile("../docs/middleware.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range order {
		name := rows[same]
		if same.fields == "stop" {
			name = "with `X-Should-Retry: false`: " + name
		}
		if row := "| " + name + same.name + " |\n"; !bytes.Contains(page, []byte(row)) {
			t.Errorf("docs/middleware.md has no row\n%s", row)
		}
	}
}

// runNode runs the clients of npm, and curl, by the Node.js that they ask for.
func runNode(t *testing.T, url string) []called {
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
	return asked(t, dir, url, node[0], "ask.mjs")
}

// runGo runs the clients of Go, which are no modules of the project.
func runGo(t *testing.T, url string) []called {
	program := filepath.Join(t.TempDir(), "callers")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Dir, build.Env = "testdata/callers", append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return asked(t, ".", url, program)
}

// asked runs a program that asks, and reads what it prints.
func asked(t *testing.T, dir, url string, command ...string) (outcomes []called) {
	args := append(append(command[1:], url), callerWaits...)
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
