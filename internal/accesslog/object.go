package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object. Its values stay as they are written, since a decoded text no longer shows whether it was
// valid; see isInvalidText.
type object struct {
	members map[string]json.RawMessage
	inner   map[string]object // cache of members that were parsed
}

func parseObject(text []byte) (o object, err error) {
	o.inner = map[string]object{}
	return o, json.Unmarshal(text, &o.members)
}

// arrayObject returns an array as an object whose names are the indexes.
func arrayObject(array json.RawMessage) object {
	var list []json.RawMessage
	_ = json.Unmarshal(array, &list) // part of a valid document
	o := object{map[string]json.RawMessage{}, map[string]object{}}
	for i, v := range list {
		o.members[strconv.Itoa(i)] = v
	}
	return o
}

// lookup returns the first value that is at one of the paths and not null, or nil. The names of members may contain
// dots.
func (o object) lookup(paths ...string) json.RawMessage {
	for _, path := range paths {
		if v := o.at(path); v != nil {
			return v
		}
	}
	return nil
}

// at returns the value at a path, or nil if it is missing or null.
func (o object) at(path string) json.RawMessage {
	if v := o.members[path]; len(v) > 0 && v[0] != 'n' {
		return v
	}
	for i := range path {
		if path[i] != '.' {
			continue
		}
		if found := o.within(path[:i], path[i+1:]); found != nil {
			return found
		}
	}
	return nil
}

// within returns the value at a path within a member.
func (o object) within(name, path string) json.RawMessage {
	inner, known := o.inner[name]
	if v := o.members[name]; !known && len(v) > 0 {
		switch v[0] {
		case '{':
			inner, _ = parseObject(v) // part of a valid document
		case '[':
			inner = arrayObject(v)
		}
		o.inner[name] = inner
	}
	return inner.at(path)
}

// decodeText returns the text of a plain value: strings without quotes and escapes, others as they are written.
func decodeText(v json.RawMessage) []byte {
	if v[0] != '"' {
		return v
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	var s string
	_ = json.Unmarshal(v, &s) // part of a valid document
	return []byte(s)
}

// isInvalidText reports whether a value of valid JSON has bytes that are not UTF-8, or half a surrogate pair such as
// \ud800. Package json would replace them, which makes one key of two.
func isInvalidText(v json.RawMessage) bool {
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
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16) // valid JSON has four digits
	return rune(n)
}
