package httplimit

import (
	"strings"
	"time"
)

// exhausted returns how long it is until no quota of a RateLimit field is used
// up: 0 if none is, or if the field does not parse. It knows the list of the
// Internet-Draft (version 8 and up),
//
//	RateLimit: "burst";r=0;t=5, "daily";r=700
//
// and the dictionary of version 7,
//
//	RateLimit: limit=100, remaining=0, reset=5
func exhausted(field string) (hold time.Duration) {
	p := &parser{rest: field}
	dict := map[string]string{}
	for more := true; more; {
		p.spaces()
		name, quoted := p.item()
		if !quoted && p.skip("=") { // else an item's parameters follow
			dict[name] = p.value()
		}
		params := p.params()
		if p.failed {
			return 0
		}
		hold = max(hold, usedUp(params["r"], params["t"]))
		p.spaces()
		if more = p.skip(","); !more && p.rest != "" {
			return 0
		}
	}
	return max(hold, usedUp(dict["remaining"], dict["reset"]))
}

// usedUp returns the seconds in reset if nothing remains. Both are integers of
// at most 15 digits, or ignored.
func usedUp(remaining, reset string) time.Duration {
	r, ok := number(remaining)
	if !ok || r != 0 || !digits(remaining) || !digits(reset) {
		return 0
	}
	t, ok := number(reset)
	if !ok {
		return 0
	}
	return time.Duration(min(t, longest.Seconds()) * float64(time.Second))
}

// parser reads structured fields (RFC 9651), as much of them as RateLimit needs.
type parser struct {
	rest   string
	failed bool
}

func (p *parser) fail() string {
	p.failed, p.rest = true, ""
	return ""
}

func (p *parser) spaces() { p.rest = strings.TrimLeft(p.rest, " \t") }

func (p *parser) skip(s string) (found bool) {
	p.rest, found = strings.CutPrefix(p.rest, s)
	return found
}

// item reads the name of a quota: a string, or a token.
func (p *parser) item() (name string, quoted bool) {
	if strings.HasPrefix(p.rest, `"`) {
		return p.text(), true
	}
	return p.token(), false
}

// params reads ;key=value as often as it comes. The last of the same key counts.
func (p *parser) params() map[string]string {
	m := map[string]string{}
	for p.skip(";") {
		p.spaces()
		key := p.span(func(c byte) bool { return lower(c) || digit(c) || strings.IndexByte("_-.*", c) >= 0 })
		if key == "" || !lower(key[0]) && key[0] != '*' {
			p.fail()
			break
		}
		m[key] = "?1" // true, as long as it has no value
		if p.skip("=") {
			m[key] = p.value()
		}
	}
	return m
}

// value reads any bare item, and returns its text.
func (p *parser) value() string {
	switch {
	case p.rest == "":
		return p.fail()
	case p.rest[0] == '"':
		return `"` + p.text() // so that it is no number
	case p.skip(":"):
		bytes, rest, ok := strings.Cut(p.rest, ":")
		if !ok {
			return p.fail()
		}
		p.rest = rest
		return ":" + bytes
	case p.skip("?"):
		return "?" + p.span(func(c byte) bool { return c == '0' || c == '1' })
	case p.rest[0] == '-', digit(p.rest[0]):
		return p.span(func(c byte) bool { return digit(c) || c == '-' || c == '.' })
	}
	return p.token()
}

// text reads a string in quotes.
func (p *parser) text() string {
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c < ' ' || c > '~':
			return p.fail()
		case c == '\\':
			i++
		case c == '"':
			s := p.rest[1:i]
			p.rest = p.rest[i+1:]
			return s
		}
	}
	return p.fail()
}

func (p *parser) token() string {
	s := p.span(func(c byte) bool {
		return lower(c|0x20) || digit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
	})
	if s == "" || digit(s[0]) {
		return p.fail()
	}
	return s
}

// span reads as far as the bytes are of a kind.
func (p *parser) span(of func(byte) bool) string {
	i := 0
	for i < len(p.rest) && of(p.rest[i]) {
		i++
	}
	s := p.rest[:i]
	p.rest = p.rest[i:]
	return s
}

func lower(c byte) bool { return 'a' <= c && c <= 'z' }

func digit(c byte) bool { return '0' <= c && c <= '9' }
