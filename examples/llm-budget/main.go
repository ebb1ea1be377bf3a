// Llm-budget is a proxy that keeps budgets in front of a language model: tokens for each user, and money for all. An
// estimate is charged before the call, more while the answer streams, and the usage that the model reports settles it.
//
//	OPENAI_API_KEY=... go run ./examples/llm-budget -store redis://HOST/0 # replicas with one store share the budgets
//
//	curl -iN localhost:8082/v1/chat/completions -H 'Authorization: Bearer key-of-alice' \
//	  -d '{"model":"gpt-4.1-mini","stream":true,"messages":[{"role":"user","content":"Tell me a story"}]}'
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store/open"
)

// users has the user of each credential. A real proxy keeps hashes of the credentials.
var users = map[string]string{"Bearer key-of-alice": "alice", "Bearer key-of-bob": "bob"}

// A log gives back all that a settlement leaves over, and a sliding window too until the window of the charge ends,
// here at midnight UTC; a token bucket gives back only what has not drained.
var (
	tokenLimit = headgate.MustParseNamed("user-tokens", "sliding-log 40000/1m")
	moneyLimit = headgate.MustParseNamed("money", "sliding-window 50/1d scale 6") // dollars, in millionths
)

var prices = llm.Prices{"gpt-4.1-mini*": { // dollars for a million tokens
	Input: headgate.MustCost("0.4"), CachedInput: headgate.MustCost("0.1"), Output: headgate.MustCost("1.6"),
}}

type proxy struct {
	limiter *headgate.Limiter
	model   *url.URL
}

// question is all that reaches the model: with the field n, an answer would have more tokens than were charged before.
type question struct {
	Model         string          `json:"model"`
	Messages      json.RawMessage `json:"messages"`
	MaxTokens     int64           `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions map[string]bool `json:"stream_options,omitempty"`
}

// ServeHTTP charges an estimate for a request, and answers it unless a limit refuses.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, known := users[r.Header.Get("Authorization")]
	if !known {
		http.Error(w, "unknown API key", http.StatusUnauthorized)
		return
	}
	q := question{MaxTokens: 256}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&q)
	price, found := prices.Find(q.Model)
	if err != nil || !found || q.MaxTokens < 1 || q.MaxTokens > 100_000 {
		http.Error(w, "not a chat completion, an unknown model, or too many tokens", http.StatusBadRequest)
		return
	}
	estimate := llm.Usage{Input: countTokens(string(q.Messages)), Output: q.MaxTokens}
	if q.Stream { // its charge grows
		estimate.Output = min(64, q.MaxTokens)
		q.StreamOptions = map[string]bool{"include_usage": true}
	}
	charges := func(u llm.Usage) []headgate.Charge {
		return []headgate.Charge{
			{Limit: tokenLimit, Key: user, Cost: headgate.Units(u.Tokens())},
			{Limit: moneyLimit, Key: "all", Cost: price.Cost(u)},
		}
	}
	options := &llm.Options{Count: countEvent, MaxOutput: q.MaxTokens, Failed: func(err error) { log.Print(err) }}
	call, d, err := llm.Begin(r.Context(), p.limiter, rand.Text(), charges, estimate, options)
	httplimit.SetRetryAfter(w.Header(), &d, httplimit.DefaultNoRetryBeyond)
	switch {
	case err != nil:
		log.Print(err) // what was charged stays: less passes than allowed, and never more
		httplimit.WriteUnavailable(w)
	case !d.Allowed:
		httplimit.WriteRefusal(w, &d, http.StatusTooManyRequests)
	default:
		p.answer(w, r, q, call)
	}
}

// answer passes a question to the model, and the answer to the client up to where a limit refuses. Then it settles.
func (p *proxy) answer(w http.ResponseWriter, r *http.Request, q question, call *llm.Call) {
	text, _ := json.Marshal(q) // never fails
	reverse := httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL, r.Out.Host = p.model, p.model.Host
			r.Out.Header = http.Header{"Authorization": {"Bearer " + os.Getenv("OPENAI_API_KEY")}}
			r.Out.Header.Set("Content-Type", "application/json")
			r.Out.Body, r.Out.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Body = call.Body(resp)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			// If the client has left, Cancel fails, and the estimate stays charged: the model may have begun.
			log.Print(errors.Join(err, call.Cancel(r.Context())))
			http.Error(w, "the model does not answer", http.StatusBadGateway)
		},
	}
	reverse.ServeHTTP(w, r)
}

// countTokens estimates the tokens of a text, at four bytes each. The settlement corrects it.
func countTokens(text string) int64 { return int64(len(text)+3) / 4 }

// countEvent estimates the tokens of the answer that an event of a stream has.
func countEvent(data []byte) (tokens int64) {
	var e struct {
		Choices []struct{ Delta struct{ Content string } }
	}
	_ = json.Unmarshal(data, &e) // other events have no tokens
	for _, choice := range e.Choices {
		tokens += countTokens(choice.Delta.Content)
	}
	return tokens
}

func main() {
	storeURL := flag.String("store", "memory:", "URL of the store, such as redis://HOST/0")
	modelURL := flag.String("model", "https://api.openai.com/v1/chat/completions", "URL of the model")
	addr := flag.String("http", "127.0.0.1:8082", "address to listen on")
	flag.Parse()
	model, err := url.Parse(*modelURL)
	if err != nil {
		log.Fatal(err)
	}
	limiter, _, err := open.Limiter(context.Background(), *storeURL, nil) // callers that come at once share round trips
	if err != nil {
		log.Fatal(err)
	}
	server := http.Server{Addr: *addr, Handler: &proxy{limiter, model}, ReadTimeout: 10 * time.Second}
	log.Fatal(server.ListenAndServe())
}
