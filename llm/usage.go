// Package llm charges calls of language models at what they use: an estimate before the call, more while the answer
// streams, and in the end what the model says. It reads the usage of OpenAI's Chat Completions and Responses and of
// Anthropic's Messages, and prices it.
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
	Input          int64 // of the prompt, neither read from a cache nor written to one
	CachedInput    int64 // of the prompt, read from a cache
	CacheWrite     int64 // of the prompt, written to a cache for some minutes
	LongCacheWrite int64 // of the prompt, written to a cache for an hour
	Output         int64 // of the answer, its reasoning included
}

// Tokens returns the sum of all fields.
func (u Usage) Tokens() int64 {
	return u.Input + u.CachedInput + u.CacheWrite + u.LongCacheWrite + u.Output
}

// report is a usage object of either provider. Absent members are nil: an event of a stream has some of them.
//
// OpenAI counts what was cached within prompt_tokens and input_tokens, Anthropic beside input_tokens.
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

type details struct {
	Cached int64 `json:"cached_tokens"`
	Write  int64 `json:"cache_write_tokens"`
}

// message is an answer, an event of a stream, or a usage object by itself.
type message struct {
	report
	Usage    *report                 `json:"usage"`
	Message  struct{ Usage *report } `json:"message"`  // of Anthropic's message_start
	Response struct{ Usage *report } `json:"response"` // of OpenAI's response.completed
}

// Add reads the usage in an answer, in an event of a stream, or in a usage object, and reports whether there is any.
// What a stream says later takes the place of what it said before: its counts are totals.
func (u *Usage) Add(text []byte) (found bool) {
	var m message
	var mismatch *json.UnmarshalTypeError // a member of another kind, such as a message that is text
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

// set takes over what a report has. A negative count is none.
func (u *Usage) set(r *report) {
	for _, o := range []struct {
		input, output *int64
		within        *details
	}{{r.Prompt, r.Completion, r.PromptDetails}, {r.Input, r.Output, r.InputDetails}} {
		if o.input != nil {
			*u = Usage{Input: max(0, *o.input), Output: u.Output}
			if d := o.within; d != nil {
				u.CachedInput = min(max(0, d.Cached), u.Input)
				u.CacheWrite = min(max(0, d.Write), u.Input-u.CachedInput)
				u.Input -= u.CachedInput + u.CacheWrite
			}
		}
		if o.output != nil {
			u.Output = max(0, *o.output)
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

// Price is what a million tokens of a model cost, in a currency. A price that is zero is that of the field before it:
// of CachedInput and CacheWrite Input, of LongCacheWrite CacheWrite; but Output has no other.
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
		price, _ := new(big.Rat).SetString(part.price.String())
		sum.Add(sum, price.Mul(price, big.NewRat(part.tokens, 1_000_000)))
	}
	cost, err := headgate.ParseCostUp(sum.FloatString(18))
	if err != nil {
		return headgate.Nanos(1<<63 - 1) // more than any limit can grant
	}
	return cost
}

// Prices are prices by model. A name that ends in * is of all models that begin with what stands before it.
type Prices map[string]Price

// Find returns the price of a model: that of its name, else that of the longest beginning.
func (p Prices) Find(model string) (price Price, found bool) {
	if price, found = p[model]; found {
		return price, true
	}
	longest := -1
	for name, one := range p {
		begin, some := strings.CutSuffix(name, "*")
		if some && len(begin) > longest && strings.HasPrefix(model, begin) {
			price, longest = one, len(begin)
		}
	}
	return price, longest >= 0
}

// eventData returns the data of a line of an event stream, or nil.
func eventData(line []byte) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return nil
	}
	return bytes.TrimSpace(data)
}
