package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

// testEnv has replicas of the proxy, which share a store, and a model.
type testEnv struct {
	budgets  budgets
	limiter  *headgate.Limiter
	replicas []*httptest.Server
	calls    atomic.Int64 // calls of the model
}

// unlimitedBudgets returns budgets that refuse nothing in a test, and whose windows do not end. The names of their
// limits begin with a prefix.
func unlimitedBudgets(prefix string) (b budgets) {
	for i, l := range b.limits() {
		algorithm, rest, _ := strings.Cut(defaults.limits()[i].String(), " ")
		_, scale, hasScale := strings.Cut(rest, " scale ")
		notation := algorithm + " 1000000/30d"
		if hasScale { // a scale leaves less room for the amount
			notation = algorithm + " 3000/30d scale " + scale
		}
		*l = headgate.MustParseNamed(fmt.Sprint(prefix, "-", i), notation)
	}
	return b
}

// limits returns the limits in the order of their charges.
func (b *budgets) limits() []*headgate.Limit {
	return []*headgate.Limit{&b.userRequests, &b.userTokens, &b.teamTokens, &b.orgTokens, &b.teamMoney, &b.orgMoney}
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

// newTestEnv starts a model and replicas of the proxy, until the test ends.
func newTestEnv(t *testing.T, s store.Store, b budgets, replicas int, model http.HandlerFunc) *testEnv {
	env := &testEnv{budgets: b, limiter: headgate.New(s, &headgate.Config{Timeout: time.Minute})}
	modelServer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		env.calls.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		model(w, r)
	}))
	t.Cleanup(modelServer.Close)
	users := map[[sha256.Size]byte]client{}
	for _, c := range people {
		users[sha256.Sum256([]byte(c.user))] = c
	}
	for range replicas {
		p := &proxy{limiter: env.limiter, budgets: b, clients: users, model: modelServer.URL, step: 8}
		r := httptest.NewServer(p)
		t.Cleanup(r.Close)
		env.replicas = append(env.replicas, r)
	}
	return env
}

// people are the clients of a testEnv. The API key of each is its name.
var people = []client{
	{"alice", "search", "acme"}, {"bob", "search", "acme"}, {"carol", "ads", "acme"}, {"dave", "ads", "initech"},
}

// send sends a request. The caller closes the body.
func (env *testEnv) send(ctx context.Context, replica int, c client, key, prompt string) (*http.Response, error) {
	body := fmt.Sprintf(`{"max_tokens":50,"messages":[{"role":"user","content":%q}]}`, prompt)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, env.replicas[replica].URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.user)
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return http.DefaultClient.Do(r)
}

// request sends a request, and reads all of the answer.
func (env *testEnv) request(t *testing.T, c client, key, prompt string) (status int, h http.Header, text string) {
	t.Helper()
	resp, err := env.send(t.Context(), 0, c, key, prompt)
	if err != nil {
		t.Errorf("send: %v", err)
		return 0, nil, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("the body: %v", err)
	}
	return resp.StatusCode, resp.Header, string(body)
}

// usedCosts returns what is used in the store, by limit and key.
func (env *testEnv) usedCosts(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, c := range people {
		for _, charge := range env.budgets.charges(c, llm.Usage{Input: 1, Output: 1}) {
			status, err := env.limiter.Inspect(t.Context(), charge.Limit, charge.Key)
			if err != nil {
				t.Fatal(err)
			}
			list[charge.Limit.Name()+" "+charge.Key] = status.Used.String()
		}
	}
	return list
}

// servedUsage returns the usage of an answer: its usage block, or else the number of its words. They must not differ.
func servedUsage(t *testing.T, prompt, text string) (u usage) {
	t.Helper()
	u.Prompt = int64(len(strings.Fields(prompt)))
	for line := range strings.Lines(text) {
		var e event
		if data, found := strings.CutPrefix(line, "data: {"); found {
			if err := json.Unmarshal([]byte("{"+data), &e); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if e.Usage != nil {
			if e.Usage.Completion != u.Completion {
				t.Errorf("got %d tokens, want those of the usage block %+v", u.Completion, *e.Usage)
			}
			return *e.Usage
		}
		for _, c := range e.Choices {
			u.Completion += int64(len(strings.Fields(c.Delta.Content)))
		}
	}
	return u
}

// bill has the expected usage by limit and key, in billionths.
type bill map[string]int64

// add adds what some requests of a client with a usage cost in all.
func (b bill) add(env *testEnv, c client, requests int64, u usage) {
	tokens, money := (u.Prompt+u.Completion)*1e9, 3000*u.Prompt+15_000*u.Completion // 3 and 15 millionths of a dollar
	user, team := c.org+"/"+c.team+"/"+c.user, c.org+"/"+c.team
	for i, cost := range []int64{requests * 1e9, tokens, tokens, tokens, money, money} {
		key := []string{user, user, team, c.org, team, c.org}[i]
		b[env.budgets.limits()[i].Name()+" "+key] += cost
	}
}

// check compares the bill with the usage in the store.
func (b bill) check(t *testing.T, env *testEnv) {
	t.Helper()
	used := env.usedCosts(t)
	for name, n := range b {
		if want := headgate.Nanos(n).String(); used[name] != want {
			t.Errorf("%s: got %s used, want %s", name, used[name], want)
		}
		delete(used, name)
	}
	for name, n := range used {
		if n != "0" {
			t.Errorf("%s: got %s used, want 0", name, n)
		}
	}
}
