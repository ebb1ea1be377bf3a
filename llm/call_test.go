package llm_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/llm"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

var tokenLimit = headgate.MustParseNamed("tokens", "fixed-window 100/1d")

func charges(u llm.Usage) []headgate.Charge {
	return []headgate.Charge{{Limit: tokenLimit, Key: "acme", Cost: headgate.Units(u.Tokens())}}
}

func newLimiter(t *testing.T) *headgate.Limiter {
	t.Helper()
	s := memory.New(nil)
	t.Cleanup(func() { s.Close() })
	return headgate.New(s, nil)
}

func usedTokens(t *testing.T, l *headgate.Limiter) string {
	t.Helper()
	s, err := l.Inspect(t.Context(), tokenLimit, "acme")
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

// countWords counts each "word" of an event as a token.
func countWords(data []byte) int64 { return int64(strings.Count(string(data), "word")) }

// brokenReader is an io.Reader that fails at once.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestBodySettles checks that the body passes unchanged, up to where the limit ends it, and what Close charges.
func TestBodySettles(t *testing.T) {
	const (
		word  = "event: x\ndata: {\"text\":\"word\"}\n\n"
		start = "data: {\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n"
		usage = "data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
		json  = `{"usage":{"prompt_tokens":9,"completion_tokens":4}}`
	)
	countOptions := &llm.Options{Count: countWords, Step: 3}
	for name, tt := range map[string]struct {
		stream   bool
		status   int
		text     string
		end      io.Reader // after the text; nil: EOF
		options  *llm.Options
		wantUsed string
		refusal  bool // the limit ends the stream
	}{
		"JSON":                                 {false, 200, json, nil, nil, "13", false},
		"JSON without a usage":                 {false, 200, `{}`, nil, nil, "30", false},
		"an error":                             {false, 429, `{"error":{}}`, nil, nil, "0", false},
		"a stream with a usage":                {true, 200, word + usage, nil, nil, "13", false},
		"a stream that counts more":            {true, 200, strings.Repeat(word, 8) + usage, nil, countOptions, "13", false},
		"a stream without a usage":             {true, 200, word, nil, nil, "30", false},
		"a stream that is counted":             {true, 200, strings.Repeat(word, 25), nil, countOptions, "35", false},
		"one that breaks off":                  {true, 200, start + word + word, brokenReader{}, nil, "30", false},
		"one that breaks off, counted":         {true, 200, start + word + word, brokenReader{}, countOptions, "9", false},
		"one that breaks off after its usage":  {true, 200, usage, brokenReader{}, nil, "30", false},
		"one that the limit ends":              {true, 200, strings.Repeat(word, 200), nil, countOptions, "100", true},
		"a line of many bytes":                 {true, 200, "data: {\"x\":\"" + strings.Repeat("y", 100_000) + "\"}\n\n" + usage, nil, nil, "13", false},
		"a stream that ends without a newline": {true, 200, strings.TrimRight(strings.TrimSuffix(usage, "data: [DONE]\n\n"), "\n"), nil, nil, "13", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(t)
			call, d, err := llm.Begin(t.Context(), l, "id", charges, llm.Usage{Input: 10, Output: 20}, tt.options)
			if err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			end := tt.end
			if end == nil {
				end = strings.NewReader("")
			}
			resp := &http.Response{
				StatusCode: tt.status, Header: http.Header{},
				Body: io.NopCloser(io.MultiReader(strings.NewReader(tt.text), end)),
			}
			if tt.stream {
				resp.Header.Set("Content-Type", "text/event-stream; charset=utf-8")
			}
			body := call.Body(resp)
			text, err := io.ReadAll(body)
			if passed := string(text) == tt.text; passed == tt.refusal || !strings.HasPrefix(tt.text, string(text)) {
				t.Errorf("got %d bytes of %d: %s", len(text), len(tt.text), text)
			}
			if errors.Is(err, headgate.ErrDenied) != tt.refusal || !tt.refusal && (err != nil) != (tt.end != nil) {
				t.Errorf("got %v, want a refusal: %v, another error: %v", err, tt.refusal, tt.end != nil)
			}
			if tt.refusal && countWords(text) != 90 { // 100 less the prompt of 10
				t.Errorf("got %d tokens, want 90", countWords(text))
			}
			for range 2 {
				if err := body.Close(); err != nil {
					t.Errorf("Close: got %v, want no error", err)
				}
			}
			if got := usedTokens(t, l); got != tt.wantUsed {
				t.Errorf("got %s used, want %s", got, tt.wantUsed)
			}
			if err := call.Settle(t.Context(), llm.Usage{Output: 99}); err != nil || usedTokens(t, l) != tt.wantUsed {
				t.Errorf("a second Settle: got %s used, %v, want %s", usedTokens(t, l), err, tt.wantUsed)
			}
		})
	}
}

// TestBeginExtendAndCancel checks that a refused Begin charges nothing, that a second Begin with the same id charges
// nothing more, how Extend charges, and that the id is free again after Cancel.
func TestBeginExtendAndCancel(t *testing.T) {
	l := newLimiter(t)
	ctx := t.Context()
	if c, d, err := llm.Begin(ctx, l, "big", charges, llm.Usage{Output: 101}, nil); c != nil || err != nil || d.Allowed {
		t.Errorf("Begin of 101: got %v %+v %v, want a refusal", c, d, err)
	}
	call, d, err := llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 60}, &llm.Options{MaxOutput: 70, Life: time.Minute})
	if err != nil || d.Replayed {
		t.Fatal(d, err)
	}
	_, d, err = llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 60}, nil)
	if err != nil || !d.Replayed || usedTokens(t, l) != "60" {
		t.Errorf("a second Begin: got %+v, %v, %s used, want Replayed and 60", d, err, usedTokens(t, l))
	}
	for _, output := range []int64{10, 61} { // MaxOutput cuts the step of 64
		if err := call.Extend(ctx, output); err != nil {
			t.Errorf("Extend to %d: got %v, want no error", output, err)
		}
	}
	if got := call.Charged(); got != (llm.Usage{Output: 70}) || usedTokens(t, l) != "70" {
		t.Errorf("got %+v, %s used, want 70", got, usedTokens(t, l))
	}
	if err := call.Extend(ctx, 101); !errors.Is(err, headgate.ErrDenied) || usedTokens(t, l) != "70" {
		t.Errorf("Extend to 101: got %v, %s used, want ErrDenied and 70", err, usedTokens(t, l))
	}
	if err := call.Cancel(ctx); err != nil || usedTokens(t, l) != "0" {
		t.Errorf("Cancel: got %v, %s used, want 0", err, usedTokens(t, l))
	}
	if _, d, err = llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 5}, nil); err != nil || !d.Allowed || d.Replayed {
		t.Errorf("Begin after Cancel: got %+v, %v, want a new admission", d, err)
	}
}

// TestFailedReportsSettleErrors checks that Options.Failed gets the error of Settle once, and that Settle can pass
// later.
func TestFailedReportsSettleErrors(t *testing.T) {
	inner := memory.New(nil)
	defer inner.Close()
	s := &failingStore{Store: inner}
	l := headgate.New(s, nil)
	var errs []error
	call, _, err := llm.Begin(t.Context(), l, "id", charges, llm.Usage{Output: 50},
		&llm.Options{Failed: func(err error) { errs = append(errs, err) }})
	if err != nil {
		t.Fatal(err)
	}
	s.err = store.ErrUnavailable
	body := call.Body(&http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody})
	if err := body.Close(); err != nil || len(errs) != 1 || !errors.Is(errs[0], store.ErrUnavailable) {
		t.Errorf("Close: got %v, and Failed got %v, want one ErrUnavailable", err, errs)
	}
	s.err = nil
	err = call.Settle(t.Context(), llm.Usage{Output: 20})
	if err != nil || usedTokens(t, headgate.New(inner, nil)) != "20" {
		t.Errorf("Settle: got %v, %s used, want 20", err, usedTokens(t, headgate.New(inner, nil)))
	}
}

// failingStore is a store whose calls fail with err, unless it is nil.
type failingStore struct {
	store.Store
	err error
}

func (f *failingStore) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Apply(ctx, ops, outs)
}
