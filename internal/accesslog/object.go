package accesslog

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// object is a JSON object. Its values stay as they are written, since isInvalidText cannot judge a decoded text.
type object struct {
	members map[string]json.RawMessage
	inner   map[string]object // cache of members that were parsed
}

func parseObject(text []byte) (o object, err error) {
	o.inner = map[string]object{}
	err = json.Unmarshal(text, &o.members)
	return o, err
}

// arrayObject returns an array as an object whose names are the indexes.
func arrayObject(array json.RawMessage) object {
	var list []json.RawMessage
	_ = json.Unmarshal(array, &list) // part of a valid document
	o := object{map[string]json.RawMessage{}, map[string]object{}}
	for i, element := range list {
		o.members[strconv.Itoa(i)] = element
	}
	return o
}

// lookup returns the first value at one of the paths that is not null, or nil. The names of members may contain dots.
func (o object) lookup(paths ...string) json.RawMessage {
	for _, path := range paths {
		if value := o.valueAt(path); value != nil {
			return value
		}
	}
	return nil
}

// valueAt returns the value at a path, or nil if it is missing or null.
func (o object) valueAt(path string) json.RawMessage {
	if v := o.members[path]; len(v) > 0 && v[0] != 'n' {
		return v
	}
	for i := range path {
		if path[i] != '.' {
			continue
		}
		if found := o.memberValue(path[:i], path[i+1:]); found != nil {
			return found
		}
	}
	return nil
}

func (o object) memberValue(name, path string) json.RawMessage {
	value, isCached := o.inner[name]
	if v := o.members[name]; !isCached && len(v) > 0 {
		switch v[0] {
		case '{':
			value, _ = parseObject(v) // part of a valid document
		case '[':
			value = arrayObject(v)
		}
		o.inner[name] = value
	}
	return value.valueAt(path)
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
// \ud800. Package json would replace these, so that two different keys become one.
func isInvalidText(v json.RawMessage) bool {
	if !utf8.Valid(v) {
		return true
	}
	for {
		i := bytes.IndexByte(v, '\\')
		if i < 0 {
			return false
		}
		length := 2
		if v[i+1] == 'u' {
			length = 6
			if half := hexRune(v[i+2:]); utf16.IsSurrogate(half) {
				tail, ok := bytes.CutPrefix(v[i+6:], []byte(`\u`))
				if !ok || utf16.DecodeRune(half, hexRune(tail)) == utf8.RuneError {
					return true
				}
				length = 12
			}
		}
		v = v[i+length:]
	}
}

// hexRune reads the four digits of an escape.
func hexRune(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 16) // valid JSON has four digits
	return rune(n)
}
