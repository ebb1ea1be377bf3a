package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object. Its values stay as they are written, since a text that has been read no longer says
// whether it was one; see lonely.
type object struct {
	members map[string]json.RawMessage
	inner   map[string]object // members that were looked into
}

func parseObject(text []byte) (o object, err error) {
	o.inner = map[string]object{}
	return o, json.Unmarshal(text, &o.members)
}

// elements returns an array as an object, whose names are numbers from 0.
func elements(array json.RawMessage) object {
	var list []json.RawMessage
	_ = json.Unmarshal(array, &list) // which is valid
	o := object{map[string]json.RawMessage{}, map[string]object{}}
	for i, v := range list {
		o.members[strconv.Itoa(i)] = v
	}
	return o
}

// lookup returns the value at the first of some paths that is there and not null, or nil. A name may contain dots
// itself.
func (o object) lookup(paths ...string) json.RawMessage {
	for _, path := range paths {
		if v := o.at(path); v != nil {
			return v
		}
	}
	return nil
}

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

// within returns the value at a path of a member.
func (o object) within(name, path string) json.RawMessage {
	inner, known := o.inner[name]
	if v := o.members[name]; !known && len(v) > 0 {
		switch v[0] {
		case '{':
			inner, _ = parseObject(v) // which is valid
		case '[':
			inner = elements(v)
		}
		o.inner[name] = inner
	}
	return inner.at(path)
}

// text returns what a plain value says: strings without quotes and escapes,
// others as they are written.
func text(v json.RawMessage) []byte {
	if v[0] != '"' {
		return v
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	var s string
	_ = json.Unmarshal(v, &s) // which is valid
	return []byte(s)
}

// lonely reports whether a value of valid JSON is no text: bytes that are not UTF-8,
// or half a surrogate pair such as \ud800. Package json would replace either, and so
// take two keys for one.
func lonely(v json.RawMessage) bool {
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
