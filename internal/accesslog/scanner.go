package accesslog

import "bytes"

// scanner reads a line from left to right. After the first thing that is missing it reads nothing more.
type scanner struct {
	rest  []byte
	wrong error // to set before a read: the error if it fails
	err   error // of the first read that failed
}

// need fails unless ok.
func (s *scanner) need(ok bool) {
	if !ok && s.err == nil {
		s.err, s.rest = s.wrong, nil
	}
}

// until returns the text before a separator, and goes behind that. Neither may be missing.
func (s *scanner) until(separator string) (text []byte) {
	text, rest, ok := bytes.Cut(s.rest, []byte(separator))
	s.rest = rest
	s.need(ok && len(text) > 0)
	return text
}

// skip goes behind a text.
func (s *scanner) skip(text string) {
	rest, ok := bytes.CutPrefix(s.rest, []byte(text))
	s.rest = rest
	s.need(ok)
}

// quoted returns the text before the quote that ends it, and goes behind that.
func (s *scanner) quoted() (text []byte) {
	n := quoted(s.rest)
	text, rest := s.rest[:n], s.rest[n:]
	s.rest = rest
	s.skip(`"`)
	return text
}

// quoted returns the place of the quote that ends a string, or the length.
func quoted(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++ // what it stands before ends nothing
		case '"':
			return i
		}
	}
	return len(b)
}
