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

var tokens = headgate.MustParseNamed("tokens", "fixed-window 100/1d")

func charges(u llm.Usage) []headgate.Charge {
	return []headgate.Charge{{Limit: tokens, Key: "acme", Cost: headgate.Units(u.Tokens())}}
}

func newLimiter(t *testing.T) *headgate.Limiter {
	t.Helper()
	s := memory.New(nil)
	t.Cleanup(func() { s.Close() })
	return headgate.New(s, nil)
}

func used(t *testing.T, l *headgate.Limiter) string {
	t.Helper()
	s, err := l.Inspect(t.Context(), tokens, "acme")
	if err != nil {
		t.Fatal(err)
	}
	return s.Used.String()
}

// words counts the tokens of an event of the tests.
func words(data []byte) int64 { return int64(strings.Count(string(data), "word")) }

// broken is a stream that ends with an error.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestBodySettles: an answer passes as it is, and its end settles the call at what is known of it.
func TestBodySettles(t *testing.T) {
	const (
		word  = "event: x\ndata: {\"text\":\"word\"}\n\n"
		start = "data: {\"message\":{\"usage\":{\"input_tokens\":7,\"output_tokens\":1}}}\n\n"
		usage = "data: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4}}\n\ndata: [DONE]\n\n"
		json  = `{"usage":{"prompt_tokens":9,"completion_tokens":4}}`
	)
	counting := &llm.Options{Count: words, Step: 3}
	for name, tt := range map[string]struct {
		stream  bool
		status  int
		text    string
		end     io.Reader // after the text; nil: EOF
		options *llm.Options
		want    string
		refused bool
	}{
		"JSON":                                 {false, 200, json, nil, nil, "13", false},
		"JSON without a usage":                 {false, 200, `{}`, nil, nil, "30", false},
		"an error":                             {false, 429, `{"error":{}}`, nil, nil, "0", false},
		"a stream with a usage":                {true, 200, word + usage, nil, nil, "13", false},
		"a stream that counts more":            {true, 200, strings.Repeat(word, 8) + usage, nil, counting, "13", false},
		"a stream without a usage":             {true, 200, word, nil, nil, "30", false},
		"a stream that is counted":             {true, 200, strings.Repeat(word, 25), nil, counting, "35", false},
		"one that breaks off":                  {true, 200, start + word + word, broken{}, nil, "30", false},
		"one that breaks off, counted":         {true, 200, start + word + word, broken{}, counting, "9", false},
		"one that breaks off after its usage":  {true, 200, usage, broken{}, nil, "30", false},
		"one that the limit ends":              {true, 200, strings.Repeat(word, 200), nil, counting, "100", true},
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
			if passed := string(text) == tt.text; passed == tt.refused || !strings.HasPrefix(tt.text, string(text)) {
				t.Errorf("%d bytes of %d passed: %s", len(text), len(tt.text), text)
			}
			if errors.Is(err, headgate.ErrDenied) != tt.refused || !tt.refused && (err != nil) != (tt.end != nil) {
				t.Error(err)
			}
			if tt.refused && words(text) != 90 { // the prompt is 10
				t.Errorf("%d tokens passed", words(text))
			}
			for range 2 {
				if err := body.Close(); err != nil {
					t.Error(err)
				}
			}
			if got := used(t, l); got != tt.want {
				t.Errorf("%s is used, want %s", got, tt.want)
			}
			if err := call.Settle(t.Context(), llm.Usage{Output: 99}); err != nil || used(t, l) != tt.want {
				t.Errorf("settled again: %s, %v", used(t, l), err)
			}
		})
	}
}

// TestCallOnce: what is refused charges nothing, what is sent again is charged once, and what is cancelled can begin
// anew.
func TestCallOnce(t *testing.T) {
	l := newLimiter(t)
	ctx := t.Context()
	if c, d, err := llm.Begin(ctx, l, "big", charges, llm.Usage{Output: 101}, nil); c != nil || err != nil || d.Allowed {
		t.Errorf("%v %+v %v", c, d, err)
	}
	first, d, err := llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 60}, &llm.Options{MaxOutput: 70, Life: time.Minute})
	if err != nil || d.Replayed {
		t.Fatal(d, err)
	}
	if _, d, err = llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 60}, nil); err != nil || !d.Replayed || used(t, l) != "60" {
		t.Errorf("sent again: %+v, %v, %s is used", d, err, used(t, l))
	}
	for _, output := range []int64{10, 61} { // a step of 64 is cut at the most
		if err := first.Extend(ctx, output); err != nil {
			t.Error(err)
		}
	}
	if got := first.Charged(); got != (llm.Usage{Output: 70}) || used(t, l) != "70" {
		t.Errorf("%+v, and %s is used", got, used(t, l))
	}
	if err := first.Extend(ctx, 101); !errors.Is(err, headgate.ErrDenied) || used(t, l) != "70" {
		t.Errorf("%v, and %s is used", err, used(t, l))
	}
	if err := first.Cancel(ctx); err != nil || used(t, l) != "0" {
		t.Errorf("%v, and %s is used", err, used(t, l))
	}
	if _, d, err = llm.Begin(ctx, l, "id", charges, llm.Usage{Output: 5}, nil); err != nil || !d.Allowed || d.Replayed {
		t.Errorf("begun anew: %+v, %v", d, err)
	}
}

// TestFailedSettlementIsSaid, once, and the call can be settled later.
func TestFailedSettlementIsSaid(t *testing.T) {
	inner := memory.New(nil)
	defer inner.Close()
	s := &failing{Store: inner}
	l := headgate.New(s, nil)
	var said []error
	call, _, err := llm.Begin(t.Context(), l, "id", charges, llm.Usage{Output: 50},
		&llm.Options{Failed: func(err error) { said = append(said, err) }})
	if err != nil {
		t.Fatal(err)
	}
	s.err = store.ErrUnavailable
	body := call.Body(&http.Response{StatusCode: 500, Body: http.NoBody})
	if err := body.Close(); err != nil || len(said) != 1 || !errors.Is(said[0], store.ErrUnavailable) {
		t.Errorf("%v %v", err, said)
	}
	s.err = nil
	if err := call.Settle(t.Context(), llm.Usage{Output: 20}); err != nil || used(t, headgate.New(inner, nil)) != "20" {
		t.Errorf("%v, and %s is used", err, used(t, headgate.New(inner, nil)))
	}
}

type failing struct {
	store.Store
	err error
}

func (f *failing) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	if f.err != nil {
		return f.err
	}
	return f.Store.Apply(ctx, ops, outs)
}
