package api

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// AppendJSON appends the request as encoding/json would write it, up to
// escapes, and faster.
func (r *Request) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	if len(r.Charges) == 0 {
		b = r.append(b)
	} else {
		b = append(b, `"charges":[`...)
		for i := range r.Charges {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(r.Charges[i].append(append(b, '{')), '}')
		}
		b = append(b, ']')
	}
	if r.Check {
		b = append(b, `,"check":true`...)
	}
	if r.ID != "" {
		b = appendText(append(b, `,"id":`...), r.ID)
	}
	if r.Life != "" {
		b = appendText(append(b, `,"life":`...), r.Life)
	}
	return append(b, '}')
}

// append appends the members of a charge. Its cost is a decimal.
func (c *Charge) append(b []byte) []byte {
	b = appendText(append(b, `"limit":`...), c.Limit)
	b = appendText(append(b, `,"key":`...), c.Key)
	if c.Cost != "" {
		b = append(append(b, `,"cost":`...), c.Cost...)
	}
	if c.Keep != "" {
		b = appendText(append(b, `,"keep":`...), c.Keep)
	}
	return b
}

// AppendJSON appends the batch as encoding/json would write it, up to escapes, and faster.
func (r *Batch) AppendJSON(b []byte) []byte {
	b = append(b, `{"requests":[`...)
	for i := range r.Requests {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.Requests[i].AppendJSON(b)
	}
	return append(b, `]}`...)
}

// AppendJSON appends the answers as encoding/json would write them, up to
// escapes, and faster.
func (a *Answers) AppendJSON(b []byte) []byte {
	b = append(b, `{"answers":[`...)
	for i := range a.Answers {
		if i > 0 {
			b = append(b, ',')
		}
		if d := a.Answers[i].Decision; d != nil {
			b = AppendDecision(b, d)
			continue
		}
		b = appendAny(b, &a.Answers[i])
	}
	return append(b, `]}`...)
}

// AppendDecision appends a decision as encoding/json would write it without escapes for
// HTML, and faster. It is not a method: types that embed a Decision would have it too, and
// it would leave out their other members.
func AppendDecision(b []byte, d *Decision) []byte {
	b = strconv.AppendBool(append(b, `{"allowed":`...), d.Allowed)
	b = appendText(append(b, `,"limit":`...), d.Limit)
	if d.Key != "" {
		b = appendText(append(b, `,"key":`...), d.Key)
	}
	b = appendRoom(b, d.Capacity, d.Remaining, d.RetryAfterMS, d.ResetAfterMS)
	b = strconv.AppendInt(append(b, `,"at":`...), d.At, 10)
	if d.Entry != 0 {
		b = strconv.AppendInt(append(b, `,"entry":`...), d.Entry, 10)
	}
	if d.Via != "" {
		b = appendText(append(b, `,"via":`...), d.Via)
	}
	if d.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	if d.Applied != "" {
		b = appendText(append(b, `,"applied":`...), d.Applied)
	}
	if len(d.Each) > 0 {
		b = append(b, `,"each":[`...)
		for i := range d.Each {
			if i > 0 {
				b = append(b, ',')
			}
			b = d.Each[i].append(b)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

func (f *Figures) append(b []byte) []byte {
	b = strconv.AppendInt(append(b, `{"charge":`...), int64(f.Charge), 10)
	b = strconv.AppendBool(append(b, `,"allowed":`...), f.Allowed)
	b = appendText(append(b, `,"limit":`...), f.Limit)
	b = appendText(append(b, `,"key":`...), f.Key)
	b = appendRoom(b, f.Capacity, f.Remaining, f.RetryAfterMS, f.ResetAfterMS)
	if f.Applied != "" {
		b = appendText(append(b, `,"applied":`...), f.Applied)
	}
	return append(b, '}')
}

// appendRoom appends the figures that a decision and each of its charges have.
func appendRoom(b []byte, capacity, remaining Amount, retry *int64, reset int64) []byte {
	b = capacity.append(append(b, `,"capacity":`...))
	b = remaining.append(append(b, `,"remaining":`...))
	if retry == nil {
		b = append(b, `,"retry_after_ms":null`...)
	} else {
		b = strconv.AppendInt(append(b, `,"retry_after_ms":`...), *retry, 10)
	}
	return strconv.AppendInt(append(b, `,"reset_after_ms":`...), reset, 10)
}

// appendText appends a JSON string. What is not plain is left to encoding/json.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendAny(b, s)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendAny appends a value as encoding/json writes it, but for the escapes that make it fit for
// HTML: by them a text could grow to six times its length.
func appendAny(b []byte, v any) []byte {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // text and numbers: it cannot fail
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
