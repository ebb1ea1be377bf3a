package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestChargesEqualTheServedUsage runs 100 streams at once. Every 20th client leaves and retries with its key, and the
// model breaks off every 20th stream.
func TestChargesEqualTheServedUsage(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		env := newTestEnv(t, s, unlimitedBudgets("limit"), 1, fakeModel)
		want, mu := bill{}, sync.Mutex{}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				c, key := people[i%len(people)], fmt.Sprint("key ", i)
				prompt := strings.Repeat("word ", 2+i%30) + fmt.Sprint(i)
				if i%20 == 7 {
					prompt = "one two BREAK three"
				}
				if i%20 == 0 {
					leaveEarly(t, env, c, key, prompt)
				}
				status, _, text := env.request(t, c, key, prompt)
				for status == http.StatusConflict { // the first request is still under way
					status, _, text = env.request(t, c, key, prompt)
				}
				if i%20 == 7 { // a retry gets the broken stream again
					_, _, retryText := env.request(t, c, key, prompt)
					if retryText != text || !strings.Contains(text, "broke off") {
						t.Errorf("stream %d: got %s\nand for the retry %s", i, text, retryText)
					}
				} else if !strings.HasSuffix(text, "data: [DONE]\n\n") {
					t.Errorf("stream %d: %d %s", i, status, text)
				}
				u := servedUsage(t, prompt, text)
				if i%20 == 7 && u != (usage{4, 2}) {
					t.Errorf("stream %d: got %+v served, want 4 and 2", i, u)
				}
				mu.Lock()
				defer mu.Unlock()
				want.add(env, c, 1, u)
			})
		}
		wg.Wait()
		if n := env.calls.Load(); n != 100 {
			t.Errorf("got %d calls of the model, want 100", n)
		}
		want.check(t, env)
	})
}

// leaveEarly sends a request and leaves after the first token.
func leaveEarly(t *testing.T, env *testEnv, c client, key, prompt string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := env.send(ctx, 0, c, key, prompt)
	if err != nil {
		t.Errorf("%s: %v", key, err)
		return
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", resp.Status, line, err)
	}
}

// TestIdempotencyKeyChargesOnce sends a request a thousand times with one key to two replicas: one call is charged.
func TestIdempotencyKeyChargesOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		env := newTestEnv(t, s, unlimitedBudgets("limit"), 2, fakeModel)
		const prompt = "what is the answer"
		var ok, conflicts atomic.Int64
		var texts sync.Map
		var wg sync.WaitGroup
		for caller := range 20 {
			wg.Go(func() {
				for range 50 {
					resp, err := env.send(t.Context(), caller%2, people[0], "the key", prompt)
					if err != nil {
						t.Errorf("send: %v", err)
						continue
					}
					text, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					switch {
					case err != nil:
						t.Errorf("the body: %v", err)
					case resp.StatusCode == http.StatusOK:
						ok.Add(1)
						texts.Store(string(text), nil)
					case resp.StatusCode == http.StatusConflict:
						conflicts.Add(1)
					default:
						t.Errorf("%s: %s", resp.Status, text)
					}
				}
			})
		}
		wg.Wait()
		if env.calls.Load() != 1 || ok.Load() == 0 || ok.Load()+conflicts.Load() != 1000 {
			t.Errorf("got %d calls of the model, %d answers, %d conflicts", env.calls.Load(), ok.Load(), conflicts.Load())
		}
		want, distinctTexts := bill{}, 0
		texts.Range(func(text, _ any) bool {
			distinctTexts++
			want.add(env, people[0], 1, servedUsage(t, prompt, text.(string)))
			return true
		})
		if distinctTexts != 1 {
			t.Errorf("got %d different answers, want 1", distinctTexts)
		}
		want.check(t, env)
	})
}

// TestARefusalChargesNothing has each of the six limits refuse the second request, and checks that none is charged.
func TestARefusalChargesNothing(t *testing.T) {
	// The prompt has 3 tokens. At first 3+8 are charged, in the end 3+3: 129 and 54 millionths of a dollar.
	const prompt = "one two three"
	small := []string{"1/30d", "16/30d", "16/30d", "16/30d", "0.00018/30d scale 6", "0.00018/30d scale 6"}
	eachStore(t, func(t *testing.T, s store.Store) {
		for i, amount := range small {
			name := fmt.Sprint("small-", i)
			b := unlimitedBudgets(name + "-and")
			*b.limits()[i] = headgate.MustParseNamed(name, "sliding-window "+amount)
			env := newTestEnv(t, s, b, 1, fakeModel)
			if status, _, text := env.request(t, people[0], "", prompt); status != http.StatusOK {
				t.Fatalf("%s: %d %s", name, status, text)
			}
			usedBefore := env.usedCosts(t)
			status, h, text := env.request(t, people[0], "key", prompt)
			if status != http.StatusTooManyRequests || !strings.Contains(text, name) || h.Get("Retry-After") == "" ||
				h.Get("X-Should-Retry") != "false" {
				t.Errorf("%s: %d %v %s", name, status, h, text)
			}
			if usedAfter := env.usedCosts(t); !reflect.DeepEqual(usedBefore, usedAfter) {
				t.Errorf("%s: got %v used, want %v as before", name, usedAfter, usedBefore)
			}
			if n := env.calls.Load(); n != 1 {
				t.Errorf("%s: got %d calls of the model, want 1", name, n)
			}
		}
	})
}

// TestRefusedExtendEndsTheStream has each limit of tokens and money refuse an extension. All six limits are charged for
// what was served before.
func TestRefusedExtendEndsTheStream(t *testing.T) {
	const prompt = "one two"
	eachStore(t, func(t *testing.T, s store.Store) {
		for i, amount := range []string{"20/30d", "20/30d", "20/30d", "0.0003/30d scale 6", "0.0003/30d scale 6"} {
			name, want := fmt.Sprint("short-", i), usage{2, 18} // 20 tokens, the limit
			if i > 2 {
				want = usage{2, 19} // 2 at 3 and 19 at 15 millionths: 0.000291 of 0.0003 dollars
			}
			b := unlimitedBudgets(name + "-and")
			*b.limits()[i+1] = headgate.MustParseNamed(name, "sliding-window "+amount)
			env := newTestEnv(t, s, b, 1, func(w http.ResponseWriter, _ *http.Request) {
				for range 30 {
					fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
				}
			})
			for range 2 { // a retry gets the same answer
				status, _, text := env.request(t, people[0], "key", prompt)
				if u := servedUsage(t, prompt, text); status != http.StatusOK || u != want ||
					!strings.Contains(text, name) || strings.Contains(text, "broke off") {
					t.Errorf("%s: %d %+v %s", name, status, u, text)
				}
			}
			total := bill{}
			total.add(env, people[0], 1, want)
			total.check(t, env)
		}
	})
}

// TestRateLimitHeaders checks the headers that clients of language models read.
func TestRateLimitHeaders(t *testing.T) {
	now := time.UnixMicro(1_800_000_000_000_000)
	s := memory.New(&memory.Config{Clock: now.UnixMicro})
	defer s.Close()
	b := unlimitedBudgets("limit")
	b.userRequests = headgate.MustParseNamed("requests", "sliding-log 2/1m")
	b.teamTokens = headgate.MustParseNamed("tokens", "sliding-log 1000/1h")
	env := newTestEnv(t, s, b, 1, fakeModel)
	for i, want := range []map[string]string{
		// Before the stream begins, the prompt and eight tokens of the answer are charged.
		{
			"Limit-Requests": "2", "Remaining-Requests": "1", "Reset-Requests": "1m0s",
			"Limit-Tokens": "1000", "Remaining-Tokens": "989", "Reset-Tokens": "1h0m0s",
		},
		{"Remaining-Requests": "0", "Remaining-Tokens": "983"}, // 1000 less 6 of the first request and 11
		{"Remaining-Requests": "0", "Remaining-Tokens": "988", "Reset-Requests": "1m0s", "Retry-After": "60"},
	} {
		status, h, text := env.request(t, people[0], "", "one two three")
		wantRefusal := i == 2
		if wantRefusal != (status == http.StatusTooManyRequests) || h.Get("Retry-After") != want["Retry-After"] {
			t.Errorf("request %d: %d %s, Retry-After %s", i, status, text, h.Get("Retry-After"))
		}
		delete(want, "Retry-After")
		for name, value := range want {
			if got := h.Get("x-ratelimit-" + name); got != value {
				t.Errorf("request %d: %s is %s, want %s", i, name, got, value)
			}
		}
	}
	status, h, _ := env.request(t, people[1], "", strings.Repeat("word ", 1000))
	if status != http.StatusTooManyRequests || h.Get("Retry-After") != "" || h.Get("X-Should-Retry") != "false" {
		t.Errorf("a request that can never pass: got %d %v, want 429 and no retry", status, h)
	}
}

// TestResetHeaderIsRoundedUp checks that a client that retries after the reset is not too early.
func TestResetHeaderIsRoundedUp(t *testing.T) {
	for reset, want := range map[time.Duration]string{
		0: "0s", time.Second: "1s", time.Second + time.Microsecond: "1.001s", 400 * time.Microsecond: "1ms",
	} {
		h := http.Header{}
		each := []headgate.ChargeDecision{{Allowed: true, ResetAfter: reset}}
		setHeaders(h, headgate.Decision{Allowed: true, Each: each})
		if got := h.Get("X-RateLimit-Reset-Requests"); got != want {
			t.Errorf("%v: got %s, want %s", reset, got, want)
		}
	}
}

// TestStreamWithoutIdempotencyKeyEndsWithTheClient checks that the charge is settled at the tokens that were sent
// before the client left.
func TestStreamWithoutIdempotencyKeyEndsWithTheClient(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		handlerDone := make(chan struct{})
		env := newTestEnv(t, s, unlimitedBudgets("limit"), 1, func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word \"}}]}\n\n")
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			close(handlerDone)
		})
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := env.send(ctx, 0, people[0], "", "one two")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for lines, n := bufio.NewReader(resp.Body), 0; n < 6; n++ {
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		await.Receive(t, "the end of the model's answer to a client that is gone", handlerDone)
		env.replicas[0].Close() // waits for the settlement
		want := bill{}
		want.add(env, people[0], 1, usage{2, 3})
		want.check(t, env)
	})
}

// TestFailedModelCallChargesNothing checks that a failed call is not charged, and that a retry calls the model again.
func TestFailedModelCallChargesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		var calls atomic.Int64
		env := newTestEnv(t, s, unlimitedBudgets("limit"), 1, func(w http.ResponseWriter, r *http.Request) {
			if calls.Add(1) == 1 {
				http.Error(w, "no GPU is free", http.StatusServiceUnavailable)
				return
			}
			fakeModel(w, r)
		})
		if status, _, text := env.request(t, people[0], "key", "one two"); status != http.StatusBadGateway {
			t.Errorf("got %d %s, want 502", status, text)
		}
		bill{}.check(t, env)
		status, _, text := env.request(t, people[0], "key", "one two")
		if status != http.StatusOK || env.calls.Load() != 2 {
			t.Errorf("got %d %s after %d calls, want 200 after 2", status, text, env.calls.Load())
		}
		want := bill{}
		want.add(env, people[0], 1, usage{2, 2})
		want.check(t, env)
	})
}

// TestIdempotencyKeyCountsForClientAndBody checks that the same key of another client, or with another body, is a new
// request.
func TestIdempotencyKeyCountsForClientAndBody(t *testing.T) {
	s := memory.New(nil)
	defer s.Close()
	env := newTestEnv(t, s, unlimitedBudgets("limit"), 1, fakeModel)
	for i, tt := range []struct {
		client client
		key    string
		prompt string
		calls  int64
	}{
		{people[0], "key", "one", 1},
		{people[0], "key", "one", 1},
		{people[1], "key", "one", 2},
		{people[0], "key", "two", 3},
		{people[0], "other", "one", 4},
		{people[0], "", "one", 5},
		{people[0], "", "one", 6},
		{people[1], "key", "one", 6},
	} {
		status, _, text := env.request(t, tt.client, tt.key, tt.prompt)
		if status != http.StatusOK || !strings.Contains(text, tt.prompt) || env.calls.Load() != tt.calls {
			t.Errorf("request %d: got %d %s, %d calls, want %d", i, status, text, env.calls.Load(), tt.calls)
		}
	}
}

func TestInvalidRequestsChargeNothing(t *testing.T) {
	s := memory.New(nil)
	defer s.Close()
	env := newTestEnv(t, s, unlimitedBudgets("limit"), 1, fakeModel)
	for body, want := range map[string]int{
		`{"messages":[{"content":"hi"}]}`:                         http.StatusOK,
		`{"messages":[{"content":"hi"}],"max_tokens":0}`:          http.StatusBadRequest,
		`{"messages":[{"content":"hi"}],"max_tokens":-5}`:         http.StatusBadRequest,
		`{"messages":[{"content":"hi"}],"max_tokens":1000000000}`: http.StatusBadRequest,
		`{"messages":[{"content":"hi"}],"stream":false}`:          http.StatusBadRequest,
		`{"messages":`: http.StatusBadRequest,
		`{"messages":[{"content":"` + strings.Repeat("x", 2<<20) + `"}]}`: http.StatusBadRequest,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer alice")
		w := httptest.NewRecorder()
		env.replicas[0].Config.Handler.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%.60s: got %d %s, want %d", body, w.Code, w.Body, want)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"messages":[{"content":"hi"}]}`))
	w := httptest.NewRecorder()
	if env.replicas[0].Config.Handler.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
		t.Errorf("without a key: got %d, want 401", w.Code)
	}
	want := bill{}
	want.add(env, people[0], 1, usage{1, 1})
	want.check(t, env)
}
