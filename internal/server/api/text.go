package api

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxText is the most bytes of a text or a number: enough for any valid one, and so few that messages with it take
// little memory.
const maxText = 4 << 10

// tooLong sets the error of a text or number that is too long and begins at a byte.
//
//go:noinline
func (s *scanner) tooLong(at int) bool {
	return s.wrong(at, "is longer than %d bytes", maxText)
}

func (s *scanner) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, s.mismatch("text")
	}
	return s.quoted()
}

// quoted reads a string after its opening quote.
func (s *scanner) quoted() ([]byte, bool) {
	first := s.at
	var text []byte // nil while there was no escape
	for s.at < len(s.data) {
		switch c := s.data[s.at]; {
		case c == '"':
			if text == nil {
				text = s.data[first:s.at]
			}
			s.at++
			return text, true
		case c == '\\':
			if text == nil {
				text = append(make([]byte, 0, 64), s.data[first:s.at]...)
			}
			r, ok := s.escape()
			if !ok {
				return nil, false
			}
			text = utf8.AppendRune(text, r)
		case c < ' ':
			return nil, s.noJSON("text without control characters")
		default:
			r, size := utf8.DecodeRune(s.data[s.at:])
			if r == utf8.RuneError && size == 1 {
				return nil, s.wrong(s.at, "is not valid UTF-8")
			}
			if text != nil {
				text = append(text, s.data[s.at:s.at+size]...)
			}
			s.at += size
		}
		if len(text) > maxText || text == nil && s.at-first > maxText {
			return nil, s.tooLong(first)
		}
	}
	return nil, s.noJSON(`'"'`)
}

// escape reads an escape, or a pair of escapes that is one character.
func (s *scanner) escape() (rune, bool) {
	start := s.at
	s.at++ // the backslash
	if s.at == len(s.data) {
		return 0, s.noJSON("an escape")
	}
	if i := strings.IndexByte(`"\/bfnrt`, s.data[s.at]); i >= 0 {
		s.at++
		return rune("\"\\/\b\f\n\r\t"[i]), true
	}
	r, ok := s.hex4()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if next := s.data[s.at:]; len(next) < 2 && isPrefix(string(next), `\u`) {
		s.at = len(s.data)
		return 0, s.noJSON("an escape")
	} else if bytes.HasPrefix(next, []byte(`\u`)) {
		s.at++
		low, ok := s.hex4()
		if !ok {
			return 0, false
		}
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, true
		}
	}
	return 0, s.wrong(start, "is not valid Unicode: %s is half of a character", s.data[start:start+6])
}

// hex4 reads the part of a \u escape after its backslash.
func (s *scanner) hex4() (rune, bool) {
	r := rune(0)
	for i := range 5 {
		if s.at == len(s.data) {
			return 0, s.noJSON("an escape")
		}
		c := s.data[s.at]
		digit := strings.IndexByte("0123456789abcdef", c|0x20)
		if i == 0 && c != 'u' || i > 0 && (digit < 0 || c < '0') {
			return 0, s.noJSON("an escape")
		}
		if i > 0 {
			r = r<<4 | rune(digit)
		}
		s.at++
	}
	return r, true
}
