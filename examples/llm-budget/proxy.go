package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/llm"
)

const (
	keyLife   = time.Hour // how long an Idempotency-Key is remembered
	maxStream = 10 * time.Minute
	maxTokens = 100_000 // of one answer
)

// client is the owner of an API key.
type client struct{ user, team, org string }

// budgets are the six limits. They have names, so that a key keeps what it has used when a limit is changed.
type budgets struct {
	userRequests, userTokens, teamTokens, orgTokens, teamMoney, orgMoney headgate.Limit
}

// defaults are windows and logs: they give back all that a settlement leaves, however many streams run at once; a token
// bucket gives back only what has not drained. A log has a row for each request, and there are few in a minute. If a
// stream goes on past midnight, the money of its estimate stays charged to the day before.
var defaults = budgets{
	userRequests: headgate.MustParseNamed("user-requests", "sliding-log 60/1m"),
	userTokens:   headgate.MustParseNamed("user-tokens", "sliding-log 40000/1m"),
	teamTokens:   headgate.MustParseNamed("team-tokens", "sliding-log 200000/1m"),
	orgTokens:    headgate.MustParseNamed("org-tokens", "sliding-log 1000000/1m"),
	teamMoney:    headgate.MustParseNamed("team-money", "sliding-window 50/1d scale 6"), // dollars, in millionths
	orgMoney:     headgate.MustParseNamed("org-money", "sliding-window 400/1d scale 6"),
}

// price is the price of the model, in dollars for a million tokens.
var price = llm.Price{Input: headgate.Units(3), CachedInput: headgate.MustCost("0.3"), Output: headgate.Units(15)}

// charges returns the charges of a request with the usage u: an estimate to begin, or the actual usage to settle.
func (b *budgets) charges(c client, u llm.Usage) []headgate.Charge {
	team := c.org + "/" + c.team
	user := team + "/" + c.user
	tokens, money := headgate.Units(u.Tokens()), price.Cost(u)
	return []headgate.Charge{
		{Limit: b.userRequests, Key: user, Cost: headgate.Units(1)},
		{Limit: b.userTokens, Key: user, Cost: tokens},
		{Limit: b.teamTokens, Key: team, Cost: tokens},
		{Limit: b.orgTokens, Key: c.org, Cost: tokens},
		{Limit: b.teamMoney, Key: team, Cost: money},
		{Limit: b.orgMoney, Key: c.org, Cost: money},
	}
}

// proxy is the HTTP handler. The store has the budgets; this process has the answers.
type proxy struct {
	limiter *headgate.Limiter
	budgets budgets
	clients map[[sha256.Size]byte]client
	model   string // URL of the model
	step    int64  // tokens of an answer that are charged before it begins, and by each extension

	// answers has the answers to requests with an Idempotency-Key, by id; nil while a request is under way.
	// A retry at another replica is not charged or sent to the model again either, since the store knows its id;
	// it gets 409. To repeat the answer there too, keep the answers in a shared place.
	answers sync.Map // values are []byte
}

// question is the request to the model. Other fields of a client's request do not reach the model: with n, say, an
// answer would have more tokens than were charged before.
type question struct {
	Model         string         `json:"model,omitempty"`
	Messages      []message      `json:"messages"`
	MaxTokens     int64          `json:"max_tokens"`
	Stream        bool           `json:"stream"`
	StreamOptions map[string]any `json:"stream_options"`
}

type message struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content"`
}

// event is an event of the model's stream.
type event struct {
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

// usage is the usage block at the end of a model's stream.
type usage struct {
	Prompt     int64 `json:"prompt_tokens"`
	Completion int64 `json:"completion_tokens"`
}

type choice struct {
	Delta message `json:"delta"`
}

func (q *question) text() string {
	var text strings.Builder
	for _, m := range q.Messages {
		text.WriteString(m.Content + "\n")
	}
	return text.String()
}

// countTokens returns the number of tokens of a text. A real proxy uses the model's tokenizer here.
// If it counts too few tokens, settling charges the others.
func countTokens(text string) int64 { return int64(len(strings.Fields(text))) }

// ServeHTTP answers a request, or repeats the answer to a request with the same Idempotency-Key.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	c, known := p.clients[sha256.Sum256([]byte(token))]
	if !known {
		fail(w, http.StatusUnauthorized, "unknown API key")
		return
	}
	q := question{MaxTokens: 256, Stream: true}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil || q.MaxTokens < 1 || q.MaxTokens > maxTokens || !q.Stream {
		fail(w, http.StatusBadRequest, "not a request for a stream, or for too many tokens")
		return
	}
	q.StreamOptions = map[string]any{"include_usage": true} // the charge is settled by it

	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		p.answer(r.Context(), w, io.Discard, rand.Text(), c, q)
		return
	}
	// The id has the client and the body. So no client gets the answer of another one, and the same
	// key with another body is another request.
	id := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %s", c, key, body)))
	if kept, found := p.answers.LoadOrStore(id, []byte(nil)); found {
		if text := kept.([]byte); text != nil {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(text)
			return
		}
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusConflict, "this request is under way")
		return
	}
	var text bytes.Buffer
	// If the client leaves, the stream goes on: its retry gets all of it.
	if p.answer(context.WithoutCancel(r.Context()), w, &text, id, c, q) {
		p.answers.Store(id, text.Bytes())
		time.AfterFunc(keyLife, func() { p.answers.Delete(id) })
	} else {
		p.answers.Delete(id) // nothing was served, and nothing is charged: a retry is a new attempt
	}
}

// answer charges a request, calls the model, and settles. It writes the answer to w and kept, and
// reports whether it has one.
func (p *proxy) answer(ctx context.Context, w http.ResponseWriter, kept io.Writer, id string, c client,
	q question,
) bool {
	uncancelled := context.WithoutCancel(ctx) // the budgets are settled even if the client is gone
	charges := func(u llm.Usage) []headgate.Charge { return p.budgets.charges(c, u) }
	estimate := llm.Usage{Input: countTokens(q.text()), Output: min(p.step, q.MaxTokens)}
	call, d, err := llm.Begin(uncancelled, p.limiter, id, charges, estimate, &llm.Options{
		Life: keyLife, Count: countEvent, Step: p.step, MaxOutput: q.MaxTokens,
		Failed: func(err error) { log.Print(err) },
	})
	setHeaders(w.Header(), d)
	switch {
	case err != nil:
		// The store may have charged the request. It is not cancelled: another replica may serve the same id.
		log.Print(err)
		fail(w, http.StatusServiceUnavailable, "the budgets cannot be read")
		return false
	case !d.Allowed:
		fail(w, http.StatusTooManyRequests, (&headgate.DeniedError{Decision: d}).Error())
		return false
	case d.Replayed:
		fail(w, http.StatusConflict, "this request was sent before, and its answer is not here")
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, maxStream)
	defer cancel()
	resp, err := p.ask(ctx, q)
	if err != nil {
		log.Print(err)
		if err := call.Cancel(uncancelled); err != nil {
			log.Print(err) // the estimate stays charged: less passes than allowed, and never more
		}
		fail(w, http.StatusBadGateway, "the model does not answer")
		return false
	}
	stream := call.Body(resp)
	defer stream.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	relay(io.MultiWriter(kept, w), http.NewResponseController(w).Flush, stream)
	return true
}

// ask sends a question to the model.
func (p *proxy) ask(ctx context.Context, q question) (*http.Response, error) {
	body, _ := json.Marshal(q) // numbers and texts never fail
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.model, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		err = fmt.Errorf("the model answers %s", resp.Status)
	}
	return resp, err
}

// countEvent returns the tokens of an event.
func countEvent(data []byte) (tokens int64) {
	var e event
	_ = json.Unmarshal(data, &e) // other events have no tokens
	for _, choice := range e.Choices {
		tokens += countTokens(choice.Delta.Content)
	}
	return tokens
}

// relay passes a stream on. If the stream breaks off, or a budget is used up, it ends with an error event.
func relay(out io.Writer, flush func() error, stream io.Reader) {
	part := make([]byte, 32<<10)
	for {
		n, err := stream.Read(part)
		// If the client is gone, either the context has ended the stream, or it goes on for the retry.
		_, _ = out.Write(part[:n])
		_ = flush()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			text := "the model broke off, or the budgets cannot be read"
			if errors.Is(err, headgate.ErrDenied) {
				text = err.Error()
			} else {
				log.Print(err)
			}
			message, _ := json.Marshal(text)
			fmt.Fprintf(out, "data: {\"error\":{\"message\":%s}}\n\n", message)
			return
		}
	}
}

// setHeaders writes a decision into the headers that clients of language models read. If several limits have the same
// unit, the headers are about the limit with the least remaining.
func setHeaders(h http.Header, d headgate.Decision) {
	units := [...]string{"requests", "tokens", "tokens", "tokens", "money", "money"} // of the charges, in their order
	tightest := map[string]headgate.ChargeDecision{}
	for _, f := range d.Each {
		t, found := tightest[units[f.Charge]]
		less := cmp.Or(cmp.Compare(f.Remaining, t.Remaining), cmp.Compare(f.RemainingNanos, t.RemainingNanos)) < 0
		if !found || less {
			tightest[units[f.Charge]] = f
		}
	}
	for unit, f := range tightest {
		h.Set("X-RateLimit-Limit-"+unit, f.CapacityCost().String())
		h.Set("X-RateLimit-Remaining-"+unit, f.RemainingCost().String())
		reset := (f.ResetAfter + time.Millisecond - 1).Truncate(time.Millisecond) // round up: nobody retries early
		h.Set("X-RateLimit-Reset-"+unit, reset.String())
	}
	// Clients wait for up to a minute. If the wait is longer or endless, the headers ask them not to retry.
	httplimit.SetRetryAfter(h, &d, httplimit.DefaultNoRetryBeyond)
}

// fail sends an error in the format of language models.
func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": text}})
}
