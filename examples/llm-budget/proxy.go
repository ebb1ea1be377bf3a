package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
)

const (
	keysLast    = time.Hour // for how long a request can be sent again
	streamsLast = 10 * time.Minute
	maxTokens   = 100_000 // of one answer
)

// proxy is the handler. The store has the budgets, and answers are those of this process.
type proxy struct {
	limiter *headgate.Limiter
	budgets budgets
	clients map[[sha256.Size]byte]client
	model   string // its URL
	step    int64  // tokens of an answer that are charged before it begins, and by each extension

	// answers has those to requests with an Idempotency-Key, by id; nil while one is under way. A
	// retry that another replica gets is not charged or sent to the model again either, since
	// the store knows its id; it is answered 409. For more, keep the answers where all find them.
	answers sync.Map // of []byte
}

// question is what the model is asked. Fields of a request that are not here do not reach the
// model: with n, say, an answer would have more tokens than were charged before.
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

// count returns the number of tokens of a text. The model's tokenizer belongs here. If it
// counts too few tokens, settling charges the others.
func count(text string) int64 { return int64(len(strings.Fields(text))) }

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
	q.StreamOptions = map[string]any{"include_usage": true} // to settle by

	key := r.Header.Get("Idempotency-Key")
	if key == "" {
		p.answer(r.Context(), w, io.Discard, rand.Text(), c, q)
		return
	}
	// The id is that of this client and this body. So nobody gets somebody else's answer, and the
	// same key with another request is another request.
	id := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %s", c, key, body)))
	if text, found := p.answers.LoadOrStore(id, []byte(nil)); found {
		repeat(w, text.([]byte))
		return
	}
	var text bytes.Buffer
	// If the client leaves, the stream goes on: its retry gets all of it.
	if p.answer(context.WithoutCancel(r.Context()), w, &text, id, c, q) {
		p.answers.Store(id, text.Bytes())
		time.AfterFunc(keysLast, func() { p.answers.Delete(id) })
	} else {
		p.answers.Delete(id) // nothing was served, and nothing is charged: a retry is a new attempt
	}
}

// answer charges a request, calls the model, and settles. It reports whether anything was
// served. What was is in kept too.
func (p *proxy) answer(ctx context.Context, w http.ResponseWriter, kept io.Writer, id string, c client,
	q question,
) bool {
	always := context.WithoutCancel(ctx) // the budgets are settled for clients that are gone too
	a := allowance{
		budgets: &p.budgets, client: c, once: p.limiter.Once(id, keysLast), step: p.step, most: q.MaxTokens,
		charged: usage{count(q.text()), min(p.step, q.MaxTokens)},
	}
	estimate := p.budgets.charges(c, a.charged)
	d, err := a.once.Take(always, estimate...)
	setHeaders(w.Header(), d)
	switch {
	case err != nil:
		// The store may have charged it. It is not cancelled: another replica may have the same id.
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
	ctx, cancel := context.WithTimeout(ctx, streamsLast)
	defer cancel()
	stream, err := p.ask(ctx, q)
	if err != nil {
		log.Print(err)
		if _, err := a.once.Cancel(always, estimate...); err != nil {
			log.Print(err) // it stays charged: less can pass than might, and never more
		}
		fail(w, http.StatusBadGateway, "the model does not answer")
		return false
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "text/event-stream")
	used := relay(always, io.MultiWriter(kept, w), http.NewResponseController(w).Flush, stream, &a)
	if _, err := a.once.Settle(always, p.budgets.charges(c, used)...); err != nil {
		log.Print(err)
	}
	return true
}

// ask sends a question to the model.
func (p *proxy) ask(ctx context.Context, q question) (io.ReadCloser, error) {
	body, _ := json.Marshal(q) // of numbers and texts: it never fails
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
	return resp.Body, nil
}

// relay passes a stream on, and returns what was served: what the usage block says, or, if the
// stream breaks off before it, what has come until then. Where the allowance cannot be extended,
// it ends the stream.
func relay(ctx context.Context, out io.Writer, flush func() error, stream io.Reader, a *allowance) usage {
	used := usage{Prompt: a.charged.Prompt}
	for lines, ended := bufio.NewReader(stream), false; ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !ended {
				breakOff(out, "the model broke off")
			}
			return used
		}
		var e event
		data, _ := strings.CutPrefix(line, "data: ")
		_ = json.Unmarshal([]byte(data), &e) // other lines have no tokens
		next := used
		for _, choice := range e.Choices {
			next.Completion += count(choice.Delta.Content)
		}
		if err := a.extend(ctx, next.Completion); err != nil {
			breakOff(out, err.Error())
			return used
		}
		used = next
		// If the client is gone, ctx ends the stream, or it goes on for the retry.
		fmt.Fprint(out, line)
		if line == "\n" {
			_ = flush()
		}
		if e.Usage != nil {
			used, ended = *e.Usage, true
		}
	}
}

// breakOff ends a stream with an error.
func breakOff(out io.Writer, text string) {
	message, _ := json.Marshal(text)
	fmt.Fprintf(out, "data: {\"error\":{\"message\":%s}}\n\n", message)
}

// repeat gives an answer once more.
func repeat(w http.ResponseWriter, text []byte) {
	if text == nil {
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusConflict, "this request is under way")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = w.Write(text)
}

// fail answers with an error as language models do.
func fail(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]string{"message": text}})
}
