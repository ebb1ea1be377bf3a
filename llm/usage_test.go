package llm_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/llm"
)

// TestUsageUpdateReadsBothProviders reads answers and streams of OpenAI's two APIs and of Anthropic's API.
func TestUsageUpdateReadsBothProviders(t *testing.T) {
	for name, tt := range map[string]struct {
		texts []string
		want  llm.Usage
	}{
		"chat": {
			[]string{`{"id":"c1","choices":[],"usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
				"prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},
				"completion_tokens_details":{"reasoning_tokens":128}}}`},
			llm.Usage{Input: 86, CachedInput: 1920, Output: 300},
		},
		"chat, streamed": {
			[]string{
				`{"choices":[{"delta":{"content":"\"usage\""}}],"usage":null}`, `[DONE]`,
				`{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}`,
			},
			llm.Usage{Input: 11, Output: 3},
		},
		"responses, streamed": {
			[]string{
				`{"type":"response.created","response":{"usage":null}}`,
				`{"type":"response.completed","response":{"usage":{"input_tokens":50,"output_tokens":7,
				"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":25}}}}`,
			},
			llm.Usage{Input: 5, CachedInput: 20, CacheWrite: 25, Output: 7},
		},
		"messages": {
			[]string{`{"type":"message","usage":{"input_tokens":21,"cache_creation_input_tokens":188,
				"cache_read_input_tokens":18086,"output_tokens":393,
				"cache_creation":{"ephemeral_5m_input_tokens":88,"ephemeral_1h_input_tokens":100}}}`},
			llm.Usage{Input: 21, CachedInput: 18086, CacheWrite: 88, LongCacheWrite: 100, Output: 393},
		},
		"messages, streamed": {
			[]string{
				`{"type":"message_start","message":{"usage":{"input_tokens":25,"cache_creation_input_tokens":0,
				"cache_read_input_tokens":40,"output_tokens":1}}}`,
				`{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hello"}}`,
				`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`,
			},
			llm.Usage{Input: 25, CachedInput: 40, Output: 15},
		},
		"a usage object": {
			[]string{`{"input_tokens":5,"output_tokens":6}`},
			llm.Usage{Input: 5, Output: 6},
		},
		"counts that are no counts": {
			[]string{`{"usage":{"prompt_tokens":-5,"completion_tokens":-1,"prompt_tokens_details":{"cached_tokens":9}}}`},
			llm.Usage{},
		},
	} {
		var u llm.Usage
		found := false
		for _, text := range tt.texts {
			found = u.Update([]byte(text)) || found
		}
		if u != tt.want || !found {
			t.Errorf("%s: got %+v, want %+v", name, u, tt.want)
		}
	}
	u := llm.Usage{Input: 3}
	for _, text := range []string{"", "{", "null", "[]", `"x"`, `{"usage":7}`, `{"usage":{}}`, `{"usage":null}`, `{"message":{}}`} {
		if u.Update([]byte(text)) || u != (llm.Usage{Input: 3}) {
			t.Errorf("%s: got %+v, want no usage and no change", text, u)
		}
	}
}

func TestPricesFindAndCost(t *testing.T) {
	dollars := headgate.MustCost
	prices := llm.Prices{
		"gpt-5-mini": {Input: dollars("0.25"), CachedInput: dollars("0.025"), Output: dollars("2")},
		"gpt-*":      {Input: dollars("10"), Output: dollars("40")},
		"claude-sonnet*": {
			Input: dollars("3"), CachedInput: dollars("0.3"), CacheWrite: dollars("3.75"), LongCacheWrite: dollars("6"),
			Output: dollars("15"),
		},
		"claude*": {Input: dollars("15"), Output: dollars("75")},
		"free":    {Input: headgate.Units(0), Output: headgate.Units(0)},
	}
	allKinds := llm.Usage{Input: 1, CachedInput: 10, CacheWrite: 100, LongCacheWrite: 1000, Output: 10_000}
	for _, tt := range []struct {
		model string
		usage llm.Usage
		want  string
	}{
		{"gpt-5-mini", llm.Usage{Input: 104}, "0.000026"},
		{"gpt-5-mini", llm.Usage{CachedInput: 1}, "0.000000025"},
		{"gpt-5-mini", allKinds, "0.0202755"}, // without a price of their own, writes to a cache cost as much as input
		{"gpt-6", llm.Usage{Input: 900, Output: 200}, "0.017"},
		{"claude-sonnet-5", allKinds, "0.156381"},
		{"claude-opus-5", llm.Usage{CachedInput: 1_000_000}, "15"},
		{"free", allKinds, "0"},
		{"free", llm.Usage{}, "0"},
		{"gpt-6", llm.Usage{Output: 1 << 62}, "184467440737095.6"},
	} {
		price, found := prices.Find(tt.model)
		if got := price.Cost(tt.usage).String(); !found || got != tt.want {
			t.Errorf("%s, %+v: got %s, want %s", tt.model, tt.usage, got, tt.want)
		}
	}
	for _, model := range []string{"", "gpt", "mistral"} {
		if p, found := prices.Find(model); found {
			t.Errorf("%q: got the price %+v, want none", model, p)
		}
	}
	if _, found := (llm.Prices{"*": {}}).Find("any"); !found {
		t.Error("the name * matches no model, want every model")
	}
	// The cost is rounded up to a billionth: a token of this price costs 1e-15.
	tinyPrice := llm.Price{Input: dollars("0.000000001")}
	if got := tinyPrice.Cost(llm.Usage{Input: 1}).String(); got != "0.000000001" {
		t.Errorf("got %s, want 0.000000001", got)
	}
}

// FuzzUsage checks that no count is negative. For texts without 0 and -, Update reports a usage exactly if it sets one.
func FuzzUsage(f *testing.F) {
	for _, text := range []string{
		`{"usage":{"prompt_tokens":9223372036854775807,"prompt_tokens_details":{"cached_tokens":9223372036854775807}}}`,
		`{"usage":{"input_tokens":1,"cache_creation_input_tokens":2,"cache_creation":{"ephemeral_1h_input_tokens":3}}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u := llm.Usage{}
		found := u.Update([]byte(text))
		if found != (u != llm.Usage{}) && !strings.Contains(text, "0") && !strings.Contains(text, "-") {
			t.Errorf("%s: got %+v, want a usage exactly if Update reports one", text, u)
		}
		if min(u.Input, u.CachedInput, u.CacheWrite, u.LongCacheWrite, u.Output) < 0 {
			t.Errorf("%s: got %+v, want no count below 0", text, u)
		}
	})
}

// TestCostOfAnInvalidPrice checks that a negative price makes a cost that every use refuses.
func TestCostOfAnInvalidPrice(t *testing.T) {
	price := llm.Price{Input: headgate.Units(-3)}
	if got, want := price.Cost(llm.Usage{Input: 1}), headgate.Units(-3); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
