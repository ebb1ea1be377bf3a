package accesslog

import "bytes"

// scanner reads a line from left to right. After the first error it reads nothing more.
type scanner struct {
	unread  []byte
	nextErr error // the error of a later read that fails
	err     error // the error of the first read that failed
}

// need records an error unless ok.
func (s *scanner) need(ok bool) {
	if !ok && s.err == nil {
		s.err, s.unread = s.nextErr, nil
	}
}

// until returns the text before a separator, and moves past both. A missing separator or an empty text is an error.
func (s *scanner) until(separator string) (text []byte) {
	text, rest, ok := bytes.Cut(s.unread, []byte(separator))
	s.unread = rest
	s.need(ok && len(text) > 0)
	return text
}

// skip moves past a text. A missing text is an error.
func (s *scanner) skip(text string) {
	rest, ok := bytes.CutPrefix(s.unread, []byte(text))
	s.unread = rest
	s.need(ok)
}

// quoted returns the text before the closing quote, and moves past both. A missing quote is an error.
func (s *scanner) quoted() (text []byte) {
	n := closingQuote(s.unread)
	text, rest := s.unread[:n], s.unread[n:]
	s.unread = rest
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
