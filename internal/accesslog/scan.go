package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// lookup returns the value at a path of a valid document, or nil. A name may
// contain dots itself; in arrays, names are numbers from 0.
func lookup(v []byte, path string) []byte {
	switch v[0] {
	case '{':
		for v = skipSpace(v[1:]); v[0] != '}'; {
			n := valueEnd(v)
			name := v[:n]
			v = skipSpace(skipSpace(v[n:])[1:]) // the colon
			n = valueEnd(v)
			if rest, ok := under(path, string(text(name))); ok {
				if rest == "" {
					return v[:n]
				}
				if found := lookup(v[:n], rest); found != nil {
					return found
				}
			}
			if v = skipSpace(v[n:]); v[0] == ',' {
				v = skipSpace(v[1:])
			}
		}
	case '[':
		number, rest, _ := strings.Cut(path, ".")
		want, err := strconv.Atoi(number)
		if err != nil || want < 0 {
			return nil
		}
		v = skipSpace(v[1:])
		for i := 0; v[0] != ']'; i++ {
			n := valueEnd(v)
			if i == want {
				if rest == "" {
					return v[:n]
				}
				return lookup(v[:n], rest)
			}
			if v = skipSpace(v[n:]); v[0] == ',' {
				v = skipSpace(v[1:])
			}
		}
	}
	return nil
}

// under returns what follows a name at the beginning of a path.
func under(path, name string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, name)
	if !ok || rest == "" {
		return "", ok
	}
	return rest[1:], rest[0] == '.' && len(rest) > 1
}

// valueEnd returns the length of the value that valid JSON begins with.
func valueEnd(v []byte) int {
	depth := 0
	for i := 0; i < len(v); i++ {
		switch v[i] {
		case '"':
			for i++; v[i] != '"'; i++ {
				if v[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
	return len(v)
}

// text returns what a plain value says: strings without quotes and escapes,
// others as they are written.
func text(v []byte) []byte {
	if v[0] != '"' {
		return v
	}
	for _, c := range v {
		if c == '\\' {
			var s string
			if json.Unmarshal(v, &s) == nil {
				return []byte(s)
			}
			break
		}
	}
	return v[1 : len(v)-1]
}

// lonely reports whether a value of valid JSON is no text: bytes that are not UTF-8,
// or half a surrogate pair such as \ud800. Package json would replace either, and so
// take two keys for one.
func lonely(v []byte) bool {
	if !utf8.Valid(v) {
		return true
	}
	for {
		i := bytes.IndexByte(v, '\\')
		if i < 0 {
			return false
		}
		n := 2
		if v[i+1] == 'u' {
			n = 6
			if first := hexRune(v[i+2:]); utf16.IsSurrogate(first) {
				rest, ok := bytes.CutPrefix(v[i+6:], []byte(`\u`))
				if !ok || utf16.DecodeRune(first, hexRune(rest)) == utf8.RuneError {
					return true
				}
				n = 12
			}
		}
		v = v[i+n:]
	}
}

// hexRune reads the four digits of an escape.
func hexRune(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16) // valid JSON has four
	return rune(n)
}

func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t' || b[0] == '\r' || b[0] == '\n') {
		b = b[1:]
	}
	return b
}
