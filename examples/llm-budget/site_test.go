package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
	"github.com/headgate/headgate/store/postgres"
)

// testEnv has a model and a proxy in front of it.
type testEnv struct {
	limiter *headgate.Limiter
	proxy   *httptest.Server
	model   *httptest.Server
	calls   atomic.Int64 // calls of the model
}

// eachStore runs a test with memory and with PostgreSQL, behind the wrappers of package front.
func eachStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) {
		s := front.New(memory.New(nil), nil)
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) {
		pg, err := postgres.Open(t.Context(), migrated.Postgres(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := front.New(pg, nil)
		t.Cleanup(func() { s.Close() })
		test(t, s)
	})
}

// setLimits replaces the limits of the program until the test ends. The names of the new ones begin with a prefix.
// An empty notation refuses nothing. No window ends in a test.
func setLimits(t *testing.T, prefix, tokens, money string) {
	t.Helper()
	tokensBefore, moneyBefore := tokenLimit, moneyLimit
	t.Cleanup(func() { tokenLimit, moneyLimit = tokensBefore, moneyBefore })
	if tokens == "" {
		tokens = "sliding-log 1000000/30d"
	}
	if money == "" {
		money = "sliding-window 3000/30d scale 6"
	}
	tokenLimit = headgate.MustParseNamed(prefix+"-tokens", tokens)
	moneyLimit = headgate.MustParseNamed(prefix+"-money", money)
}

// newTestEnv starts a model and a proxy, until the test ends.
func newTestEnv(t *testing.T, s store.Store, model http.HandlerFunc) *testEnv {
	t.Helper()
	env := &testEnv{limiter: headgate.New(s, &headgate.Config{Timeout: time.Minute})}
	env.model = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		env.calls.Add(1)
		if strings.Contains(r.Header.Get("Authorization"), "alice") || r.URL.Path != "/chat" {
			t.Errorf("the model got %s %v", r.URL, r.Header)
		}
		model(w, r)
	}))
	t.Cleanup(env.model.Close)
	modelURL, err := url.Parse(env.model.URL + "/chat")
	if err != nil {
		t.Fatal(err)
	}
	env.proxy = httptest.NewServer(&proxy{env.limiter, modelURL})
	t.Cleanup(env.proxy.Close)
	return env
}

// fakeModel answers with the words of the prompt, up to max_tokens, and a usage that has a token for each word. At the
// word STOP it breaks off, and after LOST it reports no usage.
func fakeModel(w http.ResponseWriter, r *http.Request) {
	var q question
	var messages []struct{ Content string }
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(q.Messages, &messages); err != nil || q.Stream != q.StreamOptions["include_usage"] {
		panic(fmt.Sprint(err, q))
	}
	words := strings.Fields(messages[0].Content)
	answer := words[:min(int64(len(words)), q.MaxTokens)]
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d}`, len(words), len(answer))
	if strings.Contains(messages[0].Content, "LOST") {
		usage = `"usage":null`
	}
	if !q.Stream {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":%q}}],%s}`, strings.Join(answer, ""), usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range answer {
		if word == "STOP" {
			panic(http.ErrAbortHandler)
		}
		sendWord(w, word)
	}
	fmt.Fprintf(w, "data: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
}

// sendWord sends an event with a word, which is a token if it has at most four letters.
func sendWord(w http.ResponseWriter, word string) {
	fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", word)
	_ = http.NewResponseController(w).Flush()
}

// ask sends a prompt with at most 100 tokens of answer. The caller closes the body.
func (env *testEnv) ask(ctx context.Context, user, prompt string, stream bool) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":"gpt-4.1-mini-2025-04-14","n":9,"max_tokens":100,"stream":%v,"messages":%s}`,
		stream, messages(prompt))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, env.proxy.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer key-of-"+user)
	return http.DefaultClient.Do(r)
}

func messages(prompt string) string { return fmt.Sprintf(`[{"role":"user","content":%q}]`, prompt) }

// answer is an answer without its body.
type answer struct {
	StatusCode int
	Header     http.Header
}

// request sends a prompt, and reads all of the answer. The error is about a stream that breaks off.
func (env *testEnv) request(t *testing.T, user, prompt string, stream bool) (answer, string, error) {
	t.Helper()
	resp, err := env.ask(t.Context(), user, prompt, stream)
	if err != nil {
		t.Errorf("send: %v", err)
		return answer{}, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header}, string(text), err
}

// estimated returns the usage of an answer without a report: that of the estimate for the prompt, and the words that
// were served.
func estimated(prompt, text string) llm.Usage {
	return llm.Usage{Input: countTokens(messages(prompt)), Output: int64(strings.Count(text, `"content"`))}
}

// bill has the expected usage, by the user or "money", in tokens or millionths of a dollar.
type bill map[string]int64

// add adds a request: 0.4 millionths of a dollar for a token of input and 1.6 for one of output, rounded up.
func (b bill) add(user string, u llm.Usage) {
	b[user] += u.Input + u.Output
	b["money"] += (4*u.Input + 16*u.Output + 9) / 10
}

// used returns the bill in the store.
func (env *testEnv) used(t *testing.T) bill {
	t.Helper()
	used := bill{}
	for _, name := range []string{"alice", "bob", "money"} {
		limit, key, units := tokenLimit, name, 1.0
		if name == "money" {
			limit, key, units = moneyLimit, "all", 1e6
		}
		status, err := env.limiter.Inspect(t.Context(), limit, key)
		if err != nil {
			t.Fatal(err)
		}
		used[name] = int64(math.Round(status.Used.Float64() * units))
	}
	return used
}

// check compares the bill with the usage in the store.
func (b bill) check(t *testing.T, env *testEnv) {
	t.Helper()
	for name, used := range env.used(t) {
		if used != b[name] {
			t.Errorf("got %d used of %s, want %d", used, name, b[name])
		}
	}
}
