package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/migrated"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// TestMain is the program in a process that a test starts with the arguments of the program.
func TestMain(m *testing.M) {
	if task := dbtest.Task(); task != "" {
		os.Args = append(os.Args[:1], strings.Fields(task)...)
		main()
	}
	leaktest.Main(m)
}

// TestProgramServes starts the program, and sends it a request.
func TestProgramServes(t *testing.T) {
	model := httptest.NewServer(http.HandlerFunc(fakeModel))
	defer model.Close()
	for _, storeURL := range []string{"memory:", migrated.Postgres(t)} {
		addr := fmt.Sprint("127.0.0.1:", dbtest.FreePort(t))
		dbtest.StartChild(t, fmt.Sprintf("-store %s -model %s -http %s", storeURL, model.URL, addr))
		env := &testEnv{proxy: &httptest.Server{URL: "http://" + addr + "/v1/chat/completions"}}
		await.NoError(t, "an answer with "+storeURL, func() error {
			resp, err := env.ask(t.Context(), "alice", "tell me a tale", true)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil || !strings.Contains(string(text), `"usage":{"prompt_tokens":4,"completion_tokens":4}`) {
				return fmt.Errorf("%s: %s, %w", resp.Status, text, err)
			}
			return nil
		})
	}
}

// TestChargesEqualTheServedUsage runs 100 streams at once. The model breaks off some of them, and does not report the
// usage of others.
func TestChargesEqualTheServedUsage(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		setLimits(t, "all", "", "")
		env := newTestEnv(t, s, fakeModel)
		want, mu := bill{}, sync.Mutex{}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				words := 2 + i*7%150 // some answers are cut at 100, and those of more than 64 grow
				user, prompt := []string{"alice", "bob"}[i%2], strings.Repeat("word ", words)
				used := llm.Usage{Input: int64(words), Output: int64(min(words, 100))}
				switch i % 20 {
				case 7:
					prompt = strings.Repeat("word ", i) + "STOP"
					used = llm.Usage{Input: countTokens(messages(prompt)), Output: int64(i)}
				case 14:
					prompt = "LOST " + prompt
					used = llm.Usage{Input: countTokens(messages(prompt)), Output: min(int64(words)+1, 100)}
				}
				_, text, err := env.request(t, user, prompt, true)
				breaksOff, isWhole := i%20 == 7, strings.HasSuffix(text, "data: [DONE]\n\n")
				if breaksOff != (err != nil) || breaksOff == isWhole {
					t.Errorf("stream %d: %v %s", i, err, text)
				}
				if served := int64(strings.Count(text, `"content"`)); served != used.Output {
					t.Errorf("stream %d: got %d tokens, want %d", i, served, used.Output)
				}
				mu.Lock()
				defer mu.Unlock()
				want.add(user, used)
			})
		}
		wg.Wait()
		want.check(t, env)
	})
}

// TestConcurrentStreamsKeepTheBudgets has many streams use up the budget of a user, or the money of both. Streams end
// where it is used up, and all that was served is charged.
func TestConcurrentStreamsKeepTheBudgets(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		for name, limits := range map[string][2]string{
			"tokens": {"sliding-log 1000/30d", ""}, "money": {"", "sliding-window 0.0015/30d scale 6"},
		} {
			setLimits(t, "small-"+name, limits[0], limits[1])
			env := newTestEnv(t, s, fakeModel)
			want, mu := bill{}, sync.Mutex{}
			var wg sync.WaitGroup
			refused, broken := 0, 0
			for i := range 8 {
				user, prompt := []string{"alice", "bob"}[i%2], strings.Repeat("word ", 80)
				wg.Go(func() {
					for range 5 {
						resp, text, err := env.request(t, user, prompt, true)
						mu.Lock()
						switch {
						case resp.StatusCode == http.StatusTooManyRequests:
							refused++
						case err == nil:
							want.add(user, llm.Usage{Input: 80, Output: 80})
						case errors.Is(err, io.ErrUnexpectedEOF):
							broken++
							want.add(user, estimated(prompt, text))
						default:
							t.Errorf("%d: %v %s", resp.StatusCode, err, text)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			want.check(t, env)
			if name == "tokens" && max(want["alice"], want["bob"]) > 1000 || name == "money" && want["money"] > 1500 {
				t.Errorf("%s: got %v served", name, want)
			}
			if refused == 0 || refused+broken == 40 {
				t.Errorf("%s: got %d refused, %d broken off", name, refused, broken)
			}
		}
	})
}

// TestARefusalChargesNothing has each limit refuse a second request, which has to wait, or one that can never pass.
func TestARefusalChargesNothing(t *testing.T) {
	// At first, 11+64 tokens or 107 millionths of a dollar are charged; in the end, 3+3 tokens or 6 millionths.
	const prompt = "one two six"
	eachStore(t, func(t *testing.T, s store.Store) {
		for i, tt := range []struct {
			tokens, money string
			wait          int64 // at most, in seconds; 0: for ever
			shouldRetry   string
		}{
			{"sliding-log 79/1m", "", 60, ""},
			{"sliding-log 79/30d", "", 30 * 24 * 3600, "false"},
			{"", "sliding-window 0.000112/30d scale 6", 60 * 24 * 3600, "false"},
			{"sliding-log 74/30d", "", 0, "false"},
			{"", "sliding-window 0.0001/30d scale 6", 0, "false"},
		} {
			setLimits(t, fmt.Sprint("small-", i), tt.tokens, tt.money)
			env := newTestEnv(t, s, fakeModel)
			if resp, text, _ := env.request(t, "alice", prompt, true); tt.wait > 0 && resp.StatusCode != http.StatusOK {
				t.Fatalf("%d: %d %s", i, resp.StatusCode, text)
			}
			before, callsBefore := env.used(t), env.calls.Load()
			resp, text, _ := env.request(t, "alice", prompt, true)
			wait, _ := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
			if resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(text, fmt.Sprint("small-", i)) ||
				wait > tt.wait || (wait > 0) != (tt.wait > 0) || resp.Header.Get("X-Should-Retry") != tt.shouldRetry {
				t.Errorf("%d: %d %v %s", i, resp.StatusCode, resp.Header, text)
			}
			if used, calls := env.used(t), env.calls.Load(); !maps.Equal(used, before) || calls != callsBefore {
				t.Errorf("%d: got %v used, %d calls; want %v and %d", i, used, calls, before, callsBefore)
			}
		}
	})
}

// TestRefusedExtendEndsTheStream has each limit refuse an extension. Both are charged for what was served before.
func TestRefusedExtendEndsTheStream(t *testing.T) {
	prompt := strings.Repeat("word ", 90)
	input := countTokens(messages(prompt))
	eachStore(t, func(t *testing.T, s store.Store) {
		for name, limits := range map[string][2]string{
			"tokens": {fmt.Sprintf("sliding-window %d/30d", input+70), ""},
			"money":  {"", fmt.Sprintf("sliding-window 0.%06d/30d scale 6", (4*input+16*70+9)/10)},
		} {
			setLimits(t, "short-"+name, limits[0], limits[1])
			env := newTestEnv(t, s, fakeModel)
			_, text, err := env.request(t, "alice", prompt, true)
			used := estimated(prompt, text)
			if !errors.Is(err, io.ErrUnexpectedEOF) || used.Output != 70 {
				t.Errorf("%s: got %v after %d tokens, want the end after 70", name, err, used.Output)
			}
			want := bill{}
			want.add("alice", used)
			want.check(t, env)
		}
	})
}

// TestAnswersThatAreNoStreams checks that they are settled at their usage, or charged by their estimate.
func TestAnswersThatAreNoStreams(t *testing.T) {
	s := memory.New(nil)
	defer s.Close()
	setLimits(t, "all", "", "")
	env := newTestEnv(t, s, fakeModel)
	want := bill{}
	for prompt, used := range map[string]llm.Usage{
		"one two six":      {Input: 3, Output: 3},
		"one two six LOST": {Input: countTokens(messages("one two six LOST")), Output: 100},
	} {
		resp, text, err := env.request(t, "bob", prompt, false)
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(text, "onetwosix") {
			t.Errorf("%s: %d %s %v", prompt, resp.StatusCode, text, err)
		}
		want.add("bob", used)
	}
	want.check(t, env)
}

// TestAClientThatLeavesPaysForWhatWasProduced checks that the charge is settled at the tokens that were sent before the
// client left, or stays if there is no answer yet.
func TestAClientThatLeavesPaysForWhatWasProduced(t *testing.T) {
	const prompt = "one two"
	eachStore(t, func(t *testing.T, s store.Store) {
		for words, wantOutput := range map[int]int64{3: 3, 0: 64} {
			setLimits(t, fmt.Sprint("left-", words), "", "")
			modelBegins, modelEnds := make(chan struct{}), make(chan struct{})
			env := newTestEnv(t, s, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // else the end of the request is not noticed
				w.Header().Set("Content-Type", "text/event-stream")
				for range words {
					sendWord(w, "word")
				}
				close(modelBegins)
				<-r.Context().Done()
				close(modelEnds)
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				resp, err := env.ask(ctx, "alice", prompt, true)
				if err != nil {
					return
				}
				defer resp.Body.Close()
				for lines, n := bufio.NewReader(resp.Body), 0; n < 2*words; n++ {
					if _, err := lines.ReadString('\n'); err != nil {
						t.Error(err)
					}
				}
				cancel()
			}()
			await.Receive(t, "the request at the model", modelBegins)
			if words == 0 {
				cancel()
			}
			await.Receive(t, "the client", done)
			await.Receive(t, "the end of the model's answer to a client that is gone", modelEnds)
			env.proxy.Close() // waits for the settlement
			want := bill{}
			want.add("alice", llm.Usage{Input: countTokens(messages(prompt)), Output: wantOutput})
			want.check(t, env)
		}
	})
}

// TestFailedModelCallChargesNothing checks calls that the model answers with an error, or does not answer.
func TestFailedModelCallChargesNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		setLimits(t, "all", "", "")
		env := newTestEnv(t, s, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no GPU is free", http.StatusServiceUnavailable)
		})
		resp, text, _ := env.request(t, "alice", "one two", true)
		if resp.StatusCode != http.StatusServiceUnavailable || text != "no GPU is free\n" {
			t.Errorf("got %d %s, want the 503 of the model", resp.StatusCode, text)
		}
		env.model.Close()
		if resp, text, _ := env.request(t, "alice", "one two", true); resp.StatusCode != http.StatusBadGateway {
			t.Errorf("got %d %s, want 502", resp.StatusCode, text)
		}
		bill{}.check(t, env)
	})
}

// TestAStoreThatIsAwayIsAnsweredWith503 checks that the model is not called.
func TestAStoreThatIsAwayIsAnsweredWith503(t *testing.T) {
	s := memory.New(nil)
	env := newTestEnv(t, s, fakeModel)
	s.Close()
	resp, text, _ := env.request(t, "alice", "one two", true)
	wait, calls := resp.Header.Get("Retry-After"), env.calls.Load()
	if resp.StatusCode != http.StatusServiceUnavailable || wait == "" || calls > 0 {
		t.Errorf("got %d %v %s, %d calls of the model", resp.StatusCode, resp.Header, text, calls)
	}
}

func TestInvalidRequestsChargeNothing(t *testing.T) {
	s := memory.New(nil)
	defer s.Close()
	setLimits(t, "all", "", "")
	env := newTestEnv(t, s, fakeModel)
	const begin = `{"model":"gpt-4.1-mini","stream":true,"messages":[{"content":"hi"}]`
	for body, want := range map[string]int{
		begin + `}`:                         http.StatusOK,
		begin + `,"max_tokens":0}`:          http.StatusBadRequest,
		begin + `,"max_tokens":-5}`:         http.StatusBadRequest,
		begin + `,"max_tokens":1000000000}`: http.StatusBadRequest,
		begin + `,"model":"gpt-4.1"}`:       http.StatusBadRequest, // its price is not known
		begin + `,"stream":3}`:              http.StatusBadRequest,
		begin:                               http.StatusBadRequest,
		``:                                  http.StatusBadRequest,
		`{"model":"gpt-4.1-mini","messages":[{"content":"` + strings.Repeat("x", 2<<20) + `"}]}`: http.StatusBadRequest,
	} {
		for authorization, want := range map[string]int{"Bearer key-of-alice": want, "key-of-alice": 401, "": 401} {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Header.Set("Authorization", authorization)
			w := httptest.NewRecorder()
			env.proxy.Config.Handler.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%.80s by %q: got %d %s, want %d", body, authorization, w.Code, w.Body, want)
			}
		}
	}
	want := bill{}
	want.add("alice", llm.Usage{Input: 1, Output: 1})
	want.check(t, env)
}
