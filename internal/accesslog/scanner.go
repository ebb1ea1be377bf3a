package accesslog

import "bytes"

// scanner reads a line from left to right. After the first error it reads nothing more.
type scanner struct {
	rest  []byte
	wrong error // the error of the next reads, if they fail
	err   error // the error of the first read that failed
}

// need records an error unless ok.
func (s *scanner) need(ok bool) {
	if !ok && s.err == nil {
		s.err, s.rest = s.wrong, nil
	}
}

// until returns the text before a separator, and moves past the separator. Neither may be missing.
func (s *scanner) until(separator string) (text []byte) {
	text, rest, ok := bytes.Cut(s.rest, []byte(separator))
	s.rest = rest
	s.need(ok && len(text) > 0)
	return text
}

// skip moves past a text, which has to be there.
func (s *scanner) skip(text string) {
	rest, ok := bytes.CutPrefix(s.rest, []byte(text))
	s.rest = rest
	s.need(ok)
}

// quoted returns the text before the closing quote, and moves past the quote.
func (s *scanner) quoted() (text []byte) {
	n := closingQuote(s.rest)
	text, rest := s.rest[:n], s.rest[n:]
	s.rest = rest
	s.skip(`"`)
	return text
}

// closingQuote returns the index of the quote that ends a string, or the length if there is none.
func closingQuote(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++ // the next character is escaped
		case '"':
			return i
		}
	}
	return len(b)
}
