package accesslog

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"time"
)

// usageReader reads how many tokens a call of a language model has reserved and used.
type usageReader struct {
	cost, settle []string // paths of the reserved and of the used tokens

	calls, callsWithoutReserve, callsWithoutEnd int64
}

// The paths at which logs of calls write tokens and ends.
var (
	totalNames    = []string{"total_tokens", "usage.total_tokens", "response.usage.total_tokens", "used_tokens", "used"}
	inputNames    = usagePaths("input_tokens", "prompt_tokens")
	outputNames   = usagePaths("output_tokens", "completion_tokens")
	reservedNames = []string{"reserved_tokens", "reserved", "estimated_tokens"}
	maxTokenNames = []string{
		"max_tokens", "max_output_tokens", "max_completion_tokens", "request.max_tokens",
		"request.max_output_tokens", "request.max_completion_tokens",
	}
	endNames = []string{"end", "end_time", "endTime", "ended_at", "completed_at", "finished_at"}
)

// durationNames are the names of the length of a call, with the unit of plain numbers. A text such as 250ms has one.
var durationNames = []struct {
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

// usagePaths returns the paths of names by themselves, in usage, and in the usage of a response.
func usagePaths(names ...string) (paths []string) {
	for _, prefix := range []string{"", "usage.", "response.usage."} {
		for _, name := range names {
			paths = append(paths, prefix+name)
		}
	}
	return paths
}

var (
	errNoTokens  = errors.New("says nothing of tokens: neither a total nor those of the input and the output")
	errBadTokens = errors.New("its tokens are not a plain number")
	errBadEnd    = errors.New("ends before it begins, or at no time that can be read")
)

// lookupTokens returns the number at the first path that exists, or nil. It is an error if it is not a plain decimal.
func lookupTokens(doc object, paths []string) ([]byte, error) {
	v := doc.lookup(paths...)
	if v == nil {
		return nil, nil
	}
	if number := decodeText(v); isDecimal(number) {
		return number, nil
	}
	return nil, errBadTokens
}

// isDecimal reports whether a text is digits, with or without a decimal point.
func isDecimal(b []byte) bool {
	whole, frac, point := bytes.Cut(b, []byte{'.'})
	return len(whole) > 0 && onlyDigits(whole) && onlyDigits(frac) && (len(frac) > 0 || !point)
}

// sum adds whole numbers of up to 15 digits; others are errors. nil is a missing number.
func sum(numbers ...[]byte) ([]byte, error) {
	var total int64
	for _, b := range numbers {
		if b == nil {
			continue
		}
		n, ok := parseDigits(b)
		if len(b) > 15 || !ok {
			return nil, errBadTokens
		}
		total += n
	}
	return strconv.AppendInt(nil, total, 10), nil
}

// read reads the tokens and the end of a call that began at the time at, and counts the call.
func (u *usageReader) read(doc object, at int64) (s Spent, err error) {
	var numbers [5][]byte
	for i, paths := range [5][]string{u.settle, inputNames, outputNames, u.cost, maxTokenNames} {
		if numbers[i], err = lookupTokens(doc, paths); err != nil {
			return s, err
		}
	}
	total, input, output, reserved, maxOutput := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
	if total == nil && input == nil && output == nil {
		return s, errNoTokens
	}
	if s.Used = total; total == nil {
		if s.Used, err = sum(input, output); err != nil {
			return s, err
		}
	}
	s.Reserved = reserved
	if reserved == nil && maxOutput != nil {
		if s.Reserved, err = sum(input, maxOutput); err != nil {
			return s, err
		}
	}
	if s.End, err = callEnd(doc, at); err != nil {
		return s, err
	}
	u.calls++
	if s.Reserved == nil {
		u.callsWithoutReserve++
		s.Reserved = s.Used
	}
	if s.End == 0 {
		u.callsWithoutEnd++
	}
	return s, nil
}

// callEnd returns the time at which a call ended that began at a time, or 0 if the line does not say.
func callEnd(doc object, at int64) (int64, error) {
	if v := doc.lookup(endNames...); v != nil {
		us, ok := parseAnyTime(decodeText(v))
		if !ok || us < at {
			return 0, errBadEnd
		}
		return us, nil
	}
	for _, duration := range durationNames {
		v := doc.lookup(duration.name)
		if v == nil {
			continue
		}
		s := string(decodeText(v))
		f, err := strconv.ParseFloat(s, 64)
		us := f * float64(duration.unit.Microseconds())
		if err != nil {
			d, err := time.ParseDuration(s)
			if err != nil {
				return 0, errBadEnd
			}
			us = float64(d.Microseconds())
		}
		if !(us >= 0 && us <= float64(MaxTime-at)) {
			return 0, errBadEnd
		}
		return at + int64(math.Round(us)), nil
	}
	return 0, nil
}

// notes says how many calls lack their reserved tokens or their end.
func (u *usageReader) notes() (list []string) {
	if u.callsWithoutReserve > 0 {
		list = append(list, "calls that do not say what was reserved: "+Comma(u.callsWithoutReserve)+" of "+
			Comma(u.calls)+"; they reserve what they used")
	}
	if u.callsWithoutEnd > 0 {
		list = append(list, "calls that do not say when they ended: "+Comma(u.callsWithoutEnd)+" of "+Comma(u.calls)+
			"; they are settled at once")
	}
	return list
}
