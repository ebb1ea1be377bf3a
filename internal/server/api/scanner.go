package api

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A ReadError says what is wrong with the JSON of a request.
type ReadError struct {
	Field  string // the member that is wrong; "body" for the text as a whole
	Detail string // what is wrong with it, and at which byte, counted from 1
}

// Error implements error.
func (e *ReadError) Error() string { return e.Field + ": " + e.Detail }

// scanner reads JSON (RFC 8259), and what I-JSON (RFC 7493) asks for in addition:
// text is valid Unicode, and an object has each member once. Its methods report
// false for what is wrong, and keep the first reason. A null is read as a member
// that is absent.
type scanner struct {
	data []byte
	at   int
	last [2]string // what repeated read
	err  *ReadError
}

// wrong keeps the reason for which something cannot be read. The object around it
// names the member.
//
//go:noinline
func (s *scanner) wrong(at int, format string, args ...any) bool {
	if s.err == nil {
		s.err = &ReadError{Detail: fmt.Sprintf(format, args...) + fmt.Sprintf(" (at byte %d)", at+1)}
	}
	return false
}

// noJSON is wrong about the text as a whole.
//
//go:noinline
func (s *scanner) noJSON(want string) bool {
	rest := bytes.TrimRight(s.data[s.at:], " \t\r\n")
	rest = rest[:min(len(rest), 2*len("false"))] // of a few megabytes
	switch _, size := utf8.DecodeRune(rest); {
	case s.err != nil:
	// or nothing is left
	case begins(string(rest), "true"), begins(string(rest), "false"), begins(string(rest), "null"):
		s.err = &ReadError{"body", fmt.Sprintf("ends in the middle (after byte %d)", len(s.data))}
	default:
		s.err = &ReadError{"body", fmt.Sprintf("is not JSON (at byte %d): found %s, want %s", s.at+1,
			strconv.QuoteToASCII(string(rest[:size])), want)}
	}
	return false
}

// begins reports whether text is a word, or the beginning of it.
func begins(text, word string) bool { return len(text) <= len(word) && word[:len(text)] == text }

// mismatch is wrong about a value that is of another kind.
//
//go:noinline
func (s *scanner) mismatch(want string) bool {
	kind := ""
	switch c := s.peek(); {
	case c == '"':
		kind = "text"
	case c == '{':
		kind = "an object"
	case c == '[':
		kind = "an array"
	case c == '-' || c-'0' <= 9:
		kind = "a number"
	case bytes.HasPrefix(s.data[s.at:], []byte("null")):
		kind = "null"
	case bytes.HasPrefix(s.data[s.at:], []byte("true")), bytes.HasPrefix(s.data[s.at:], []byte("false")):
		kind = "true or false"
	}
	if kind != "" {
		return s.wrong(s.at, "must be %s, not %s", want, kind)
	}
	return s.noJSON(want)
}

// peek returns the next byte that is not white space, or 0.
func (s *scanner) peek() byte {
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// skip skips a byte, if it comes next.
func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// end reports whether nothing follows.
func (s *scanner) end() bool {
	if s.peek() == 0 && s.at == len(s.data) {
		return true
	}
	if s.err == nil {
		s.err = &ReadError{"body", fmt.Sprintf("something follows the JSON value (at byte %d)", s.at+1)}
	}
	return false
}

// anyName is the bit of the members of an object whose names are arbitrary. object does not detect repeated ones.
const anyName = 1 << 31

// object reads an object. member reads the value of one, and returns a bit that no
// other member has; or 0 if the member is not known, or its value is wrong.
func (s *scanner) object(member func(name []byte) (bit uint)) (seen uint, ok bool) {
	if !s.skip('{') {
		return 0, s.mismatch("an object")
	}
	if s.skip('}') {
		return 0, true
	}
	for {
		start := s.at
		if !s.skip('"') {
			return 0, s.noJSON("the name of a member")
		}
		name, ok := s.quoted()
		if !ok {
			return 0, s.named("body")
		}
		if !s.skip(':') {
			return 0, s.noJSON(`":"`)
		}
		bit := member(name)
		switch {
		case bit == 0 && s.err == nil:
			s.unknown(start, name)
			return 0, false
		case bit == 0:
			return 0, s.named(string(name))
		case seen&bit != 0 && bit != anyName:
			s.wrong(start, "stands twice in one object")
			return 0, s.named(string(name))
		}
		seen |= bit
		if !s.skip(',') {
			if !s.skip('}') {
				return 0, s.noJSON(`"," or "}"`)
			}
			return seen, true
		}
	}
}

// named names the member that is wrong, unless something within it was named.
func (s *scanner) named(name string) bool {
	if s.err.Field == "" {
		s.err.Field = name
	}
	return false
}

// unknown is wrong about a name.
func (s *scanner) unknown(at int, name []byte) {
	hint := ""
	if !bytes.Equal(bytes.ToLower(name), name) {
		hint = "; names are in lower case"
	}
	s.wrong(at, "has an unknown field %+.40q%s", name, hint)
	s.named("body")
}

// array reads an array.
func (s *scanner) array(element func() bool) bool {
	if !s.skip('[') {
		return s.null() || s.mismatch("an array")
	}
	if s.skip(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if !s.skip(',') {
			return s.skip(']') || s.noJSON(`"," or "]"`)
		}
	}
}

// repeated reads a string that is likely to have come shortly before.
func (s *scanner) repeated() (string, bool) {
	text, ok := s.text()
	for _, known := range s.last {
		if ok && string(text) == known {
			return known, true
		}
	}
	s.last[1] = s.last[0]
	s.last[0] = string(text)
	return s.last[0], ok
}

// number reads a number. A null is nil.
func (s *scanner) number() ([]byte, bool) {
	s.peek()
	start := s.at
	if s.at < len(s.data) && s.data[s.at] == '-' {
		s.at++
	}
	whole := s.digits()
	if whole == 0 {
		if s.at > start {
			return nil, s.noJSON("a digit")
		}
		return nil, s.null() || s.mismatch("a number")
	}
	if whole > 1 && s.data[s.at-whole] == '0' {
		s.at += 1 - whole
		return nil, s.noJSON("a number without leading zeros")
	}
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		if s.digits() == 0 {
			return nil, s.noJSON("a digit")
		}
	}
	if s.at < len(s.data) && s.data[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.data) && (s.data[s.at] == '+' || s.data[s.at] == '-') {
			s.at++
		}
		if s.digits() == 0 {
			return nil, s.noJSON("a digit")
		}
	}
	if s.at-start > maxText {
		return nil, s.tooLong(start)
	}
	return s.data[start:s.at], true
}

// digits skips digits and returns how many there were.
func (s *scanner) digits() int {
	start := s.at
	for s.at < len(s.data) && s.data[s.at]-'0' <= 9 {
		s.at++
	}
	return s.at - start
}

// integer reads a whole number that is not negative. A null is 0.
func (s *scanner) integer() (int64, bool) {
	s.peek()
	start := s.at
	var v int64
	for s.at < len(s.data) && s.data[s.at]-'0' <= 9 {
		v = v*10 + int64(s.data[s.at]-'0')
		s.at++
	}
	n := s.at - start
	if fraction := s.at < len(s.data) && (s.data[s.at] == '.' || s.data[s.at]|0x20 == 'e'); n == 0 || n > 18 || n > 1 &&
		s.data[start] == '0' || fraction {
		s.at = start
		text, ok := s.number()
		if !ok || text == nil {
			return 0, ok
		}
		return 0, s.wrong(start, "must be a whole number of at most 18 digits, and not negative")
	}
	return v, true
}

func (s *scanner) flag() (value, ok bool) {
	if s.word("true") {
		return true, true
	}
	return false, s.word("false") || s.null() || s.mismatch("true or false")
}

func (s *scanner) null() bool { return s.word("null") }

func (s *scanner) word(w string) bool {
	s.peek()
	if end := s.at + len(w); end <= len(s.data) && string(s.data[s.at:end]) == w {
		s.at = end
		return true
	}
	return false
}
