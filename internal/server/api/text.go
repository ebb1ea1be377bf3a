package api

import (
	"bytes"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxText is how long a text or a number may be, in bytes: more than any that is right,
// and so little that to say what is wrong with it takes little memory.
const maxText = 4 << 10

// tooLong is wrong about a text or a number that began at a byte.
//
//go:noinline
func (s *scanner) tooLong(at int) bool {
	return s.wrong(at, "is longer than %d bytes", maxText)
}

// plain says which bytes of a string stand for themselves, in ASCII.
var plain = func() (plain [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		plain[c] = c != '"' && c != '\\'
	}
	return plain
}()

// text reads a string.
func (s *scanner) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, s.mismatch("text")
	}
	return s.quoted()
}

// quoted reads the rest of a string.
func (s *scanner) quoted() ([]byte, bool) {
	ascii := true
	for i := s.at; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case plain[c]:
		case c == '"':
			text := s.data[s.at:i]
			if len(text) > maxText {
				return nil, s.tooLong(s.at)
			}
			if !ascii && !utf8.Valid(text) {
				return nil, s.notUTF8(i)
			}
			s.at = i + 1
			return text, true
		case c == '\\':
			return s.escaped()
		case c < ' ':
			s.at = i
			return nil, s.noJSON("text without control characters")
		default:
			ascii = false
		}
	}
	s.at = len(s.data)
	return nil, s.noJSON(`'"'`)
}

// notUTF8 is wrong about a byte before end that is no part of a character.
func (s *scanner) notUTF8(end int) bool {
	for at := s.at; at < end; {
		r, size := utf8.DecodeRune(s.data[at:end])
		if r == utf8.RuneError && size == 1 {
			return s.wrong(at, "is not valid UTF-8")
		}
		at += size
	}
	return s.wrong(s.at, "is not valid UTF-8")
}

// escaped reads the rest of a string that has escapes.
func (s *scanner) escaped() ([]byte, bool) {
	text := make([]byte, 0, 64)
	first := s.at
	for s.at < len(s.data) {
		start := s.at
		if len(text) > maxText {
			return nil, s.tooLong(first)
		}
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return text, true
		case c == '\\':
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
			s.at += size
			text = append(text, s.data[start:s.at]...)
		}
	}
	return nil, s.noJSON(`'"'`)
}

// escape reads an escape, or two that are one character.
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
	if next := s.data[s.at:]; len(next) < 2 && begins(string(next), `\u`) {
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
