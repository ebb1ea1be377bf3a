package api

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/headgate/headgate/law"
)

// scanner reads JSON (RFC 8259) with the additional rules of I-JSON (RFC 7493): text is valid Unicode, and an object
// has each member once. Its methods return false on an error, and keep the first one.
type scanner struct {
	data []byte
	at   int
	err  *law.InvalidError

	nested  bool // within an array
	objects int  // objects in arrays that have no arrays of objects themselves
}

// fail sets the error, unless there is one already.
//
//go:noinline
func (s *scanner) fail(field, format string, args ...any) bool {
	if s.err == nil {
		s.err = &law.InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
	}
	return false
}

// wrong sets an error, whose text ends with the number of a byte. The object around it sets the field.
//
//go:noinline
func (s *scanner) wrong(at int, format string, args ...any) bool {
	return s.fail("", format+" (at byte %d)", append(args, at+1)...)
}

// noJSON sets the error that the next text is not the JSON that was wanted.
//
//go:noinline
func (s *scanner) noJSON(want string) bool {
	rest := bytes.TrimRight(s.data[s.at:], " \t\r\n")
	rest = rest[:min(len(rest), 2*len("false"))] // it may have megabytes
	text := string(rest)
	if isPrefix(text, "true") || isPrefix(text, "false") || isPrefix(text, "null") { // also if text is empty
		return s.fail("body", "ends in the middle (after byte %d)", len(s.data))
	}
	_, size := utf8.DecodeRune(rest)
	found := strconv.QuoteToASCII(text[:size])
	return s.fail("body", "is not JSON (at byte %d): found %s, want %s", s.at+1, found, want)
}

// isPrefix reports whether word begins with text.
func isPrefix(text, word string) bool { return len(text) <= len(word) && word[:len(text)] == text }

// mismatch sets the error that the next value is of another kind than wanted.
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

// skip skips a byte if it is the next one, and reports whether it was.
func (s *scanner) skip(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// end reports whether nothing follows, and fails otherwise.
func (s *scanner) end() bool {
	return s.peek() == 0 && s.at == len(s.data) ||
		s.fail("body", "something follows the JSON value (at byte %d)", s.at+1)
}

// members reads an object. It calls read for the value of each member, with the byte at which the name begins.
func (s *scanner) members(read func(at int, name []byte) bool) bool {
	if !s.skip('{') {
		return s.mismatch("an object")
	}
	if s.skip('}') {
		return true
	}
	for {
		at := s.at
		if !s.skip('"') {
			return s.noJSON("the name of a member")
		}
		name, ok := s.quoted()
		if !ok {
			return s.setField("body")
		}
		if !s.skip(':') {
			return s.noJSON(`":"`)
		}
		if !read(at, name) {
			return s.setField(string(name))
		}
		if !s.skip(',') {
			return s.skip('}') || s.noJSON(`"," or "}"`)
		}
	}
}

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
		return nil, s.mismatch("a number")
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

// integer reads a whole number that is not negative.
func (s *scanner) integer() (int64, bool) {
	s.peek()
	start := s.at
	text, ok := s.number()
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < 0 || n >= 1e18 {
		return 0, s.wrong(start, "must be a whole number of at most 18 digits, and not negative")
	}
	return n, true
}

// word skips a word if it comes next, and reports whether it did.
func (s *scanner) word(w string) bool {
	s.peek()
	if end := s.at + len(w); end <= len(s.data) && string(s.data[s.at:end]) == w {
		s.at = end
		return true
	}
	return false
}
