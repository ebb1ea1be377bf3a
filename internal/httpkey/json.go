package httpkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// JSONNumber returns the number at a path such as usage.total_tokens of a JSON text: names of members
// with dots between them. An empty path is the whole text. Of two members of one name the first counts.
func JSONNumber(text []byte, path string) (json.Number, error) {
	value, _, err := find(text, path)
	if err != nil {
		return "", err
	}
	token, err := next(decoder(value))
	if err != nil {
		return "", err
	}
	number, ok := token.(json.Number)
	if !ok {
		return "", fmt.Errorf("%s is not a number", name(path))
	}
	return number, nil
}

// JSONLength returns how many elements the array at a path has, as [JSONNumber] has it. A text that
// names a member of the path twice, in whatever case, is an error: some decoders take the last one, or
// ignore case, and what they read could be another array than the one that is counted.
func JSONLength(text []byte, path string) (int, error) {
	value, twice, err := find(text, path)
	switch {
	case err != nil:
		return 0, err
	case twice:
		return 0, fmt.Errorf("%s stands twice in the body", path)
	}
	dec := decoder(value)
	if token, err := next(dec); err != nil {
		return 0, err
	} else if token != json.Delim('[') {
		return 0, fmt.Errorf("%s is not an array", name(path))
	}
	n := 0
	for ; dec.More(); n++ {
		var element json.RawMessage
		if err := wrong(dec.Decode(&element)); err != nil {
			return 0, err
		}
	}
	if _, err := next(dec); err != nil { // the end of the array: there may be none
		return 0, err
	}
	return n, nil
}

func name(path string) string {
	if path == "" {
		return "the body"
	}
	return path
}

// find returns the value at a path. twice reports whether there is another one: a member of the path has a namesake, in
// whatever case.
func find(text []byte, path string) (value json.RawMessage, twice bool, err error) {
	value = text
	for member := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		dec := decoder(value)
		token, err := next(dec)
		if err != nil {
			return nil, false, err
		}
		value = nil
		similar := 0
		for token == json.Delim('{') && dec.More() {
			name, err := next(dec)
			if err != nil {
				return nil, false, err
			}
			var v json.RawMessage
			if err := wrong(dec.Decode(&v)); err != nil {
				return nil, false, err
			}
			if name == member && value == nil {
				value = v
			}
			if name, ok := name.(string); ok && strings.EqualFold(name, member) {
				similar++
			}
		}
		if value == nil {
			return nil, false, fmt.Errorf("there is no %s in the body", path)
		}
		if _, err := next(dec); err != nil { // the end of the object: there may be none
			return nil, false, err
		}
		twice = twice || similar > 1
	}
	return value, twice, nil
}

func decoder(text []byte) *json.Decoder {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec
}

func next(dec *json.Decoder) (json.Token, error) {
	token, err := dec.Token()
	return token, wrong(err)
}

// wrong returns what is wrong with the text without repeating it.
func wrong(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body ends before its JSON does")
	}
	return fmt.Errorf("the body is not JSON: %w", err)
}
