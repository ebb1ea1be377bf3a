package api

import "unicode/utf8"

// scanner reads JSON. Its methods report false for what they do not know.
type scanner struct {
	data []byte
	at   int
	last [2]string // what repeated read
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
func (s *scanner) end() bool { return s.peek() == 0 && s.at == len(s.data) }

// object reads an object with at least one member. member reads the value of
// one, and returns a bit that no other member has, or 0.
func (s *scanner) object(member func(name []byte) (bit uint)) bool {
	if !s.skip('{') {
		return false
	}
	for seen := uint(0); ; {
		name, ok := s.text()
		if !ok || !s.skip(':') {
			return false
		}
		bit := member(name)
		if bit == 0 || seen&bit != 0 {
			return false
		}
		seen |= bit
		if !s.skip(',') {
			return s.skip('}')
		}
	}
}

// array reads an array with at least one element.
func (s *scanner) array(element func() bool) bool {
	if !s.skip('[') {
		return false
	}
	for {
		if !element() {
			return false
		}
		if !s.skip(',') {
			return s.skip(']')
		}
	}
}

// text reads a string without escapes.
func (s *scanner) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	ascii := true
	for i := s.at; i < len(s.data); i++ {
		switch c := s.data[i]; {
		case c == '"':
			text := s.data[s.at:i]
			s.at = i + 1
			return text, ascii || utf8.Valid(text)
		case c < ' ' || c == '\\':
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
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

// number reads a decimal.
func (s *scanner) number() ([]byte, bool) {
	s.peek()
	start := s.at
	if s.at < len(s.data) && s.data[s.at] == '-' {
		s.at++
	}
	whole := s.digits()
	ok := whole == 1 || whole > 1 && s.data[s.at-whole] != '0'
	if s.at < len(s.data) && s.data[s.at] == '.' {
		s.at++
		ok = s.digits() > 0 && ok
	}
	return s.data[start:s.at], ok
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
	n := s.digits()
	if n == 0 || n > 18 || n > 1 && s.data[start] == '0' {
		return 0, false
	}
	var v int64
	for _, c := range s.data[start:s.at] {
		v = v*10 + int64(c-'0')
	}
	return v, true
}

func (s *scanner) flag() (value, ok bool) {
	if s.word("true") {
		return true, true
	}
	return false, s.word("false")
}

func (s *scanner) word(w string) bool {
	s.peek()
	if end := s.at + len(w); end <= len(s.data) && string(s.data[s.at:end]) == w {
		s.at = end
		return true
	}
	return false
}
