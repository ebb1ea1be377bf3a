package accesslog

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// usage finds what a call of a language model has reserved and used.
type usage struct {
	cost, settle []string // where

	calls, unreserved, endless int64 // all, and those of which something is not known
}

// Where a log of calls writes tokens.
var (
	totals   = []string{"total_tokens", "usage.total_tokens", "response.usage.total_tokens", "used_tokens", "used"}
	inputs   = around("input_tokens", "prompt_tokens")
	outputs  = around("output_tokens", "completion_tokens")
	reserves = []string{"reserved_tokens", "reserved", "estimated_tokens"}
	allowed  = []string{
		"max_tokens", "max_output_tokens", "max_completion_tokens", "request.max_tokens",
		"request.max_output_tokens", "request.max_completion_tokens",
	}
	ends = []string{"end", "end_time", "endTime", "ended_at", "completed_at", "finished_at"}
)

// lasts is where the length of a call is written, and in what.
var lasts = []struct {
	name string
	unit time.Duration
}{
	{"duration_ms", time.Millisecond},
	{"latency_ms", time.Millisecond},
	{"response_time_ms", time.Millisecond},
	{"duration_s", time.Second},
	{"duration", time.Second},
	{"latency", time.Second},
}

// around returns names as they stand by themselves, in usage and in the usage of a response.
func around(names ...string) (all []string) {
	for _, prefix := range []string{"", "usage.", "response.usage."} {
		for _, name := range names {
			all = append(all, prefix+name)
		}
	}
	return all
}

var (
	errNoTokens  = errors.New("says nothing of tokens: neither a total nor those of the input and the output")
	errTokens    = errors.New("its tokens are not a plain number")
	errEndBefore = errors.New("ends before it begins, or at no time that can be read")
)

// tokens returns the number at the first of the paths that is there.
func tokens(doc object, paths []string) ([]byte, error) {
	v := doc.lookup(paths...)
	if v == nil {
		return nil, nil
	}
	if number := text(v); decimal(number) {
		return number, nil
	}
	return nil, errTokens
}

// decimal reports whether a text is digits, with or without a point among them.
func decimal(b []byte) bool {
	whole, frac, point := bytes.Cut(b, []byte{'.'})
	return len(whole) > 0 && onlyDigits(whole) && onlyDigits(frac) && (len(frac) > 0 || !point)
}

// sum adds whole numbers that may be missing.
func sum(numbers ...[]byte) ([]byte, error) {
	var all int64
	for _, b := range numbers {
		if b == nil {
			continue
		}
		n, ok := digits(b)
		if len(b) > 15 || !ok {
			return nil, errTokens
		}
		all += n
	}
	return strconv.AppendInt(nil, all, 10), nil
}

// read reads what a call has cost.
func (u *usage) read(doc object, at int64) (s Spent, err error) {
	var found [5][]byte
	for i, paths := range [5][]string{u.settle, inputs, outputs, u.cost, allowed} {
		if found[i], err = tokens(doc, paths); err != nil {
			return s, err
		}
	}
	total, input, output, reserved, most := found[0], found[1], found[2], found[3], found[4]
	if total == nil && input == nil && output == nil {
		return s, errNoTokens
	}
	if s.Used = total; total == nil {
		if s.Used, err = sum(input, output); err != nil {
			return s, err
		}
	}
	s.Reserved = reserved
	if reserved == nil && most != nil {
		if s.Reserved, err = sum(input, most); err != nil {
			return s, err
		}
	}
	if s.End, err = end(doc, at); err != nil {
		return s, err
	}
	u.calls++
	if s.Reserved == nil {
		u.unreserved++
		s.Reserved = s.Used
	}
	if s.End == 0 {
		u.endless++
	}
	return s, nil
}

// end returns when a call ended, or 0 if the line does not say.
func end(doc object, at int64) (int64, error) {
	if v := doc.lookup(ends...); v != nil {
		us, ok := anyTime(text(v))
		if !ok || us < at {
			return 0, errEndBefore
		}
		return us, nil
	}
	for _, l := range lasts {
		v := doc.lookup(l.name)
		if v == nil {
			continue
		}
		s := string(text(v))
		f, err := strconv.ParseFloat(s, 64)
		us := f * float64(l.unit.Microseconds())
		if err != nil {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, errEndBefore
			}
			us = float64(d.Microseconds())
		}
		if !(us >= 0 && us <= float64(MaxTime-at)) {
			return 0, errEndBefore
		}
		return at + int64(math.Round(us)), nil
	}
	return 0, nil
}

// notes counts the calls of which something is not known.
func (u *usage) notes() (list []string) {
	if u.unreserved > 0 {
		list = append(list, "calls that do not say what was reserved: "+Comma(u.unreserved)+" of "+Comma(u.calls)+
			"; they reserve what they used")
	}
	if u.endless > 0 {
		list = append(list, "calls that do not say when they ended: "+Comma(u.endless)+" of "+Comma(u.calls)+
			"; they are settled at once")
	}
	return list
}
