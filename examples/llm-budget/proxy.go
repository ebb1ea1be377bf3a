package main

import (
	"bytes"
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
	"github.com/headgate/headgate/llm"
)

const (
	keyLife   = time.Hour        // how long an Idempotency-Key is remembered
	maxStream = 10 * time.Minute // how long a stream may last
	maxTokens = 100_000          // bound of max_tokens
)

// proxy is the HTTP handler. The store has the budgets; this process has the answers.
type proxy struct {
	limiter *headgate.Limiter
	budgets budgets
	clients map[[sha256.Size]byte]client
	model   string // URL of the model
	step    int64  // tokens of an answer that are charged before it begins, and by each extension

	// answers has the answers to requests with an Idempotency-Key, by id; nil while a request is under way. A retry at
	// another replica gets 409: the store knows its id, so it is neither charged nor sent to the model again. To repeat
	// the answer there too, keep the answers in a shared place.
	answers sync.Map // values are []byte
}

// question is the request to the model. Other fields of a client's request do not reach the model: with the field n, an
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
	c, ok := p.clients[sha256.Sum256([]byte(token))]
	if !ok {
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
	q.StreamOptions = map[string]any{"include_usage": true} // the usage block settles the charge

	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		p.answer(r.Context(), w, io.Discard, rand.Text(), c, q)
		return
	}
	// The id covers the client and the body. So no client gets the answer of another client, and the same key with
	// another body is another request.
	id := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %s", c, key, body)))
	if text, found := p.answers.LoadOrStore(id, []byte(nil)); found {
		repeat(w, text.([]byte))
		return
	}
	var text bytes.Buffer
	// If the client leaves, the stream goes on: its retry gets all of it.
	if p.answer(context.WithoutCancel(r.Context()), w, &text, id, c, q) {
		p.answers.Store(id, text.Bytes())
		time.AfterFunc(keyLife, func() { p.answers.Delete(id) })
	} else {
		p.answers.Delete(id) // nothing was served: a retry asks the store again
	}
}

// answer charges a request, calls the model, and settles. It writes the answer to w and record, or an error to w, and
// reports whether there is an answer.
func (p *proxy) answer(ctx context.Context, w http.ResponseWriter, record io.Writer, id string, c client,
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
	resp, err := p.callModel(ctx, q) //nolint:bodyclose // call.Body closes it
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
	relay(io.MultiWriter(record, w), http.NewResponseController(w).Flush, stream)
	return true
}

// callModel sends a question to the model.
func (p *proxy) callModel(ctx context.Context, q question) (*http.Response, error) {
	body, _ := json.Marshal(q) // numbers and texts never fail
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.model, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("the model answers %s", resp.Status)
	}
	return resp, nil
}

// countEvent returns the tokens of the answer that an event has.
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
		switch {
		case errors.Is(err, io.EOF):
			return
		case errors.Is(err, headgate.ErrDenied):
			breakOff(out, err.Error())
			return
		case err != nil:
			log.Print(err)
			breakOff(out, "the model broke off, or the budgets cannot be read")
			return
		}
	}
}

// breakOff ends a stream with an error.
func breakOff(out io.Writer, text string) {
	message, _ := json.Marshal(text)
	fmt.Fprintf(out, "data: {\"error\":{\"message\":%s}}\n\n", message)
}

// repeat sends a stored answer again, or 409 while the request is under way.
func repeat(w http.ResponseWriter, text []byte) {
	if text == nil {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusConflict, "this request is under way")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write(text)
}

// fail answers with an error in the format of language models.
func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": text}})
}
