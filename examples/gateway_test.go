package examples_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/command"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// fakeModel answers as OpenAI and Anthropic do, with one word for ten tokens, and counts what it would bill by the
// prices of gateway/headgate.yaml, in millionths of a dollar.
type fakeModel struct {
	calls, billed atomic.Int64
	faultDue      chan struct{} // gets a value at every 25th call, if a receiver waits; nil: never
}

func (m *fakeModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream        bool
		MaxTokens     int64 `json:"max_tokens"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if m.calls.Add(1)%25 == 0 {
		select {
		case m.faultDue <- struct{}{}:
		default:
		}
	}
	words := q.MaxTokens/10 - rand.Int64N(q.MaxTokens/100)
	isOpenAI := strings.HasSuffix(r.URL.Path, "completions")
	const input = 20
	if isOpenAI { // 0.25 and 2 dollars for a million tokens
		m.billed.Add((input*25 + 10*words*200) / 100)
	} else { // 3 and 15 dollars
		m.billed.Add(input*3 + 10*words*15)
	}
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		if text := strings.TrimSpace(strings.Repeat("word ", int(words))); isOpenAI {
			fmt.Fprintf(w, `{"id":"c","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop",`+
				"\n"+`"message":{"role":"assistant","content":%q}}],`+"\n"+`"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`,
				text, input, 10*words)
		} else {
			fmt.Fprintf(w, `{"id":"m","type":"message","role":"assistant","content":[{"type":"text","text":%q}],`+
				`"usage":{"input_tokens":%d,"output_tokens":%d}}`, text, input, 10*words)
		}
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(event, format string, args ...any) {
		if event != "" {
			fmt.Fprintf(w, "event: %s\n", event)
		}
		fmt.Fprintf(w, "data: "+format+"\n\n", args...)
		_ = http.NewResponseController(w).Flush()
	}
	if isOpenAI {
		for range words {
			send("", `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"word "}}],"usage":null}`)
		}
		if q.StreamOptions.IncludeUsage {
			send("", `{"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`,
				input, 10*words)
		}
		send("", "[DONE]")
		return
	}
	send("message_start", `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],`+
		`"model":"claude","usage":{"input_tokens":%d,"output_tokens":1}}}`, input)
	send("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)
	for range words {
		send("content_block_delta",
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"word "}}`)
	}
	send("content_block_stop", `{"type":"content_block_stop","index":0}`)
	send("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}`, 10*words)
	send("message_stop", `{"type":"message_stop"}`)
}

// gatewayFolder returns a folder with the files of examples/gateway, the packages of npm, and the client in Python.
func gatewayFolder(t *testing.T) string {
	t.Helper()
	dir := copyWithModules(t, "gateway")
	for _, name := range []string{"headgate.py", "headgate_asyncio.py"} {
		text, err := os.ReadFile(filepath.Join("../clients/python", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGatewaysServeTheOfficialClients calls both gateways by OpenAI's and Anthropic's clients. Some calls are refused,
// and the money that is charged for the others is what the model bills.
func TestGatewaysServeTheOfficialClients(t *testing.T) {
	tier.Engines(t)
	node, python := dbtest.Program(t, "node", "nodejs"), "/usr/bin/python3"
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/fastapi", "python3-fastapi")
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/uvicorn", "python3-uvicorn")
	dbtest.InstalledPath(t, "/usr/lib/python3/dist-packages/httpx", "python3-httpx")
	dir := gatewayFolder(t)
	for name, program := range map[string][]string{
		"express": {node, "express.mjs"},
		"fastapi": {python, "-m", "uvicorn", "--log-level", "error", "--port", "PORT", "fastapi_gateway:app"},
	} {
		model := &fakeModel{}
		upstream := httptest.NewServer(model)
		defer upstream.Close()
		addr, gatewayPort := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t)), fmt.Sprint(dbtest.FreePort(t))
		startProgram(t, dir, "http://"+addr+"/readyz", nil, command.Path(t), "serve", "--config", "headgate.yaml",
			"--store", "memory:", "--http", addr)
		args := strings.Fields(strings.ReplaceAll(strings.Join(program[1:], " "), "PORT", gatewayPort))
		url := "http://127.0.0.1:" + gatewayPort
		env := []string{
			"HEADGATE_SERVERS=http://" + addr, "HEADGATE_SERVER=http://" + addr, "MODEL_URL=" + upstream.URL,
			"PORT=" + gatewayPort, "PYTHONDONTWRITEBYTECODE=1",
		}
		startProgram(t, dir, url, env, program[0], args...)
		out := runProgram(t, dir, nil, node, "call.mjs", url)
		t.Log(name, "\n", out)
		for _, want := range []string{
			"openai word", "openai stream word", "anthropic word", "anthropic stream word",
			`refused {"max_tokens":200000} 429 429 over the limit tokens false`,
			`refused {"max_completion_tokens":200000} 429 429 over the limit tokens false`,
			`refused {"max_tokens":40000,"n":3} 429 429 over the limit tokens false`,
		} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: got\n%s\nwant %q", name, out, want)
			}
		}
		if got, want := usedMoney(t, addr), model.billed.Load(); got != want {
			t.Errorf("%s: got %d millionths of a dollar charged, want %d, as the model bills", name, got, want)
		}
	}
}

// usedMoney returns what the limit usd has charged to the key all, in millionths of a dollar.
func usedMoney(t *testing.T, addr string) int64 {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/v1/usage?key=all&limit=usd")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var usage struct{ Limits []struct{ Used float64 } }
	if err := json.NewDecoder(resp.Body).Decode(&usage); err != nil || len(usage.Limits) != 1 {
		t.Fatalf("got %v and the error %v, want one limit", usage, err)
	}
	return int64(usage.Limits[0].Used*1e6 + 0.5)
}

// TestStreamsKeepABudgetOfMoney lets 64 streams at once spend $10.00 through a gateway, by the official clients in
// JavaScript and in Go, while servers on one database are killed in turn. What the model bills is at most the budget,
// and at least 95 % of it.
func TestStreamsKeepABudgetOfMoney(t *testing.T) {
	tier.Engines(t)
	node, dir, db := dbtest.Program(t, "node", "nodejs"), gatewayFolder(t), dbtest.Postgres(t)
	text, err := os.ReadFile(filepath.Join(dir, "headgate.yaml"))
	if err == nil {
		// The limit of tokens refuses nothing, so that only the budget does.
		text = []byte(strings.Replace(string(text), "100000/1m", "1000000000/1m", 1))
		err = os.WriteFile(filepath.Join(dir, "headgate.yaml"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	var servers []string
	for range 3 {
		servers = append(servers, fmt.Sprint("127.0.0.1:", dbtest.FreePort(t)))
	}
	start := func(addr string) *exec.Cmd {
		cmd := exec.Command(command.Path(t), "serve", "--config", "headgate.yaml", "--store", db, "--http", addr)
		cmd.Dir = dir
		if err := cmd.Start(); err != nil {
			t.Error(err)
		}
		return cmd
	}
	runProgram(t, dir, nil, command.Path(t), "migrate", "--store", db)
	processes := make([]*exec.Cmd, len(servers))
	for i, addr := range servers {
		processes[i] = start(addr)
		await.NoError(t, "a server", readyCheck("http://"+addr+"/readyz"))
	}
	model := &fakeModel{faultDue: make(chan struct{})}
	kills := 0
	var killer sync.WaitGroup
	killer.Go(func() {
		for range model.faultDue {
			p := &processes[kills%len(servers)]
			_ = (*p).Process.Kill()
			_ = (*p).Wait()
			*p = start(servers[kills%len(servers)])
			kills++
		}
	})
	upstream := httptest.NewServer(model)
	defer upstream.Close()
	gatewayPort := fmt.Sprint(dbtest.FreePort(t))
	url := "http://127.0.0.1:" + gatewayPort
	env := []string{
		"HEADGATE_SERVERS=http://" + strings.Join(servers, ",http://"), "MODEL_URL=" + upstream.URL,
		"PORT=" + gatewayPort,
	}
	startProgram(t, dir, url, env, node, "express.mjs")
	streams := filepath.Join(t.TempDir(), "streams")
	runProgram(t, "gateway", ownModule, "go", "build", "-o", streams, ".")
	outputs := make([]string, 2)
	var callers sync.WaitGroup
	callers.Go(func() { outputs[0] = runProgram(t, dir, nil, node, "streams.mjs", url, "32") })
	callers.Go(func() { outputs[1] = runProgram(t, dir, nil, streams, url, "32") })
	callers.Wait()
	close(model.faultDue)
	killer.Wait()
	await.NoError(t, "a server", readyCheck("http://"+servers[0]+"/readyz"))
	charged, billed := usedMoney(t, servers[0]), model.billed.Load()
	t.Logf("%d kills; %q; billed %d of 10,000,000 millionths of a dollar, charged %d", kills, outputs, billed, charged)
	if billed > 10_000_000 || billed < 9_500_000 || charged < billed {
		t.Errorf("got %d billed and %d charged, want 9,500,000 to 10,000,000 billed and at least as much charged", billed, charged)
	}
	for _, p := range processes {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}
