// Package llm charges calls of language models by their usage: an estimate before the call, more while the answer
// streams, and at the end the usage that the model reports. It reads the usage of OpenAI's Chat Completions and
// Responses APIs and of Anthropic's Messages API, and computes its price.
//
//	charges := func(u llm.Usage) []headgate.Charge {
//		return []headgate.Charge{
//			{Limit: tokens, Key: user, Cost: headgate.Units(u.Tokens())},
//			{Limit: money, Key: team, Cost: price.Cost(u)},
//		}
//	}
//	call, d, err := llm.Begin(ctx, limiter, id, charges, llm.Usage{Input: 900, Output: 4096}, nil)
//	if err != nil || !d.Allowed { ... }          // 503, or 429 with d.RetryAfter
//	resp, err := http.DefaultClient.Do(request)  // if that fails: call.Cancel(ctx)
//	resp.Body = call.Body(resp)                  // settles when it is closed
package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math/big"
	"strings"

	"github.com/headgate/headgate"
)

// Usage counts the tokens of one call. Each token is in one field alone. The zero value has used nothing.
type Usage struct {
	Input          int64 // prompt tokens that are neither read from a cache nor written to one
	CachedInput    int64 // prompt tokens that are read from a cache
	CacheWrite     int64 // prompt tokens that are written to a cache for some minutes
	LongCacheWrite int64 // prompt tokens that are written to a cache for an hour
	Output         int64 // tokens of the answer, including its reasoning
}

// Tokens returns the sum of all fields.
func (u Usage) Tokens() int64 {
	return u.Input + u.CachedInput + u.CacheWrite + u.LongCacheWrite + u.Output
}

// report is a usage object of either provider. Absent members are nil: an event of a stream has some of them.
//
// OpenAI includes cached tokens in prompt_tokens and input_tokens; Anthropic does not include them in input_tokens.
type report struct {
	Prompt        *int64   `json:"prompt_tokens"`
	Completion    *int64   `json:"completion_tokens"`
	PromptDetails *details `json:"prompt_tokens_details"`
	Input         *int64   `json:"input_tokens"`
	Output        *int64   `json:"output_tokens"`
	InputDetails  *details `json:"input_tokens_details"`
	CacheRead     *int64   `json:"cache_read_input_tokens"`
	CacheWrite    *int64   `json:"cache_creation_input_tokens"`
	CacheCreation *struct {
		Hour int64 `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
}

// details has the cached tokens of OpenAI's prompt_tokens or input_tokens.
type details struct {
	Cached int64 `json:"cached_tokens"`
	Write  int64 `json:"cache_write_tokens"`
}

// message is an answer, an event of a stream, or a usage object by itself.
type message struct {
	report
	Usage    *report                 `json:"usage"`
	Message  struct{ Usage *report } `json:"message"`  // in Anthropic's message_start
	Response struct{ Usage *report } `json:"response"` // in OpenAI's response.completed
}

// Update sets the counts that an answer, an event of a stream, or a usage object reports, and reports whether there are
// any. The counts of a stream are totals, so they replace earlier ones: to sum up calls, use a Usage for each.
func (u *Usage) Update(text []byte) (found bool) {
	var m message
	var mismatch *json.UnmarshalTypeError // a member of another type, such as a message that is text
	if err := json.Unmarshal(text, &m); err != nil && !errors.As(err, &mismatch) {
		return false
	}
	for _, r := range []*report{&m.report, m.Usage, m.Message.Usage, m.Response.Usage} {
		if r != nil && (r.Prompt != nil || r.Completion != nil || r.Input != nil || r.Output != nil) {
			u.set(r)
			found = true
		}
	}
	return found
}

// set takes over the counts of a report; a negative count is 0.
func (u *Usage) set(r *report) {
	for _, counts := range []struct {
		input, output *int64
		inputDetails  *details
	}{{r.Prompt, r.Completion, r.PromptDetails}, {r.Input, r.Output, r.InputDetails}} {
		if counts.input != nil {
			*u = Usage{Input: max(0, *counts.input), Output: u.Output} // without the cached tokens of an earlier report
			if d := counts.inputDetails; d != nil {
				u.CachedInput = min(max(0, d.Cached), u.Input)
				u.CacheWrite = min(max(0, d.Write), u.Input-u.CachedInput)
				u.Input -= u.CachedInput + u.CacheWrite
			}
		}
		if counts.output != nil {
			u.Output = max(0, *counts.output)
		}
	}
	if r.CacheRead != nil {
		u.CachedInput = max(0, *r.CacheRead)
	}
	if r.CacheWrite != nil {
		u.CacheWrite = max(0, *r.CacheWrite)
	}
	if c := r.CacheCreation; c != nil && r.CacheWrite != nil {
		u.LongCacheWrite = min(max(0, c.Hour), u.CacheWrite)
		u.CacheWrite -= u.LongCacheWrite
	}
}

// Price is the price of a million tokens of a model, in a currency. A field that is the zero Cost has a default: Input
// for CachedInput and CacheWrite, and CacheWrite for LongCacheWrite. The zero Cost of Input or Output is a price of
// nothing, for which others need headgate.Units(0).
type Price struct {
	Input, CachedInput, CacheWrite, LongCacheWrite, Output headgate.Cost
}

// Cost returns the price of a usage, rounded up to a billionth. Example: at 3 and 15 dollars a million, 900 tokens of
// input and 200 of output cost 0.0057.
func (p Price) Cost(u Usage) headgate.Cost {
	write := cmp.Or(p.CacheWrite, p.Input)
	sum := new(big.Rat)
	for _, part := range []struct {
		tokens int64
		price  headgate.Cost
	}{
		{u.Input, p.Input},
		{u.CachedInput, cmp.Or(p.CachedInput, p.Input)},
		{u.CacheWrite, write},
		{u.LongCacheWrite, cmp.Or(p.LongCacheWrite, write)},
		{u.Output, p.Output},
	} {
		price, ok := new(big.Rat).SetString(part.price.String())
		if !ok {
			return part.price // it is invalid, and every use of it says so
		}
		sum.Add(sum, price.Mul(price, big.NewRat(part.tokens, 1_000_000)))
	}
	cost, err := headgate.ParseCostUp(sum.FloatString(18)) // exact: a price has 9 decimals at most, its millionth 15
	if err != nil {
		return headgate.Nanos(1<<63 - 1) // too large, or negative: an invalid cost
	}
	return cost
}

// Prices maps models to prices. A name that ends in * is for all models whose names begin with the text before the *.
type Prices map[string]Price

// Find returns the price of a model: the price of its name, or else of the longest name with a * that matches.
func (p Prices) Find(model string) (price Price, found bool) {
	if price, found = p[model]; found {
		return price, true
	}
	maxLen := -1
	for name, namePrice := range p {
		prefix, isPattern := strings.CutSuffix(name, "*")
		if isPattern && len(prefix) > maxLen && strings.HasPrefix(model, prefix) {
			price, maxLen = namePrice, len(prefix)
		}
	}
	return price, maxLen >= 0
}

// eventData returns the data of a line of an event stream, or nil if the line has no data.
func eventData(line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil
	}
	return bytes.TrimSpace(data)
}
