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
// with dots between them. An empty path is the whole text.
func JSONNumber(text []byte, path string) (json.Number, error) {
	dec, err := at(text, path)
	if err != nil {
		return "", err
	}
	token, err := next(dec)
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
	for member := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		var err error
		if text, err = only(text, member, path); err != nil {
			return 0, err
		}
	}
	dec, err := at(text, "")
	if err != nil {
		return 0, err
	}
	if token, err := next(dec); err != nil {
		return 0, err
	} else if token != json.Delim('[') {
		return 0, fmt.Errorf("%s is not an array", name(path))
	}
	n := 0
	for ; dec.More(); n++ {
		if err := skip(dec); err != nil {
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

// at returns a decoder that stands before the value at a path. Of two members of one name the first
// counts.
func at(text []byte, path string) (*json.Decoder, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for member := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		if token, err := next(dec); err != nil {
			return nil, err
		} else if token != json.Delim('{') {
			return nil, fmt.Errorf("there is no %s in the body", path)
		}
		found := false
		for dec.More() && !found {
			token, err := next(dec)
			if err != nil {
				return nil, err
			}
			if found = token == member; found {
				break
			}
			if err := skip(dec); err != nil {
				return nil, err
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no %s in the body", path)
		}
	}
	return dec, nil
}

// only returns the value of the only member of an object that has a name; path is for messages.
func only(text []byte, member, path string) (value json.RawMessage, err error) {
	dec, err := at(text, "")
	if err != nil {
		return nil, err
	}
	if token, err := next(dec); err != nil {
		return nil, err
	} else if token != json.Delim('{') {
		return nil, fmt.Errorf("there is no %s in the body", path)
	}
	similar := 0
	for dec.More() {
		token, err := next(dec)
		if err != nil {
			return nil, err
		}
		var v json.RawMessage
		if err := wrong(dec.Decode(&v)); err != nil {
			return nil, err
		}
		if token == member {
			value = v
		}
		if name, ok := token.(string); ok && strings.EqualFold(name, member) {
			similar++
		}
	}
	if _, err := next(dec); err != nil { // the end of the object: there may be none
		return nil, err
	}
	switch {
	case value == nil:
		return nil, fmt.Errorf("there is no %s in the body", path)
	case similar > 1:
		return nil, fmt.Errorf("%s stands twice in the body", path)
	}
	return value, nil
}

// skip reads over a value.
func skip(dec *json.Decoder) error {
	var value json.RawMessage
	return wrong(dec.Decode(&value))
}

func next(dec *json.Decoder) (json.Token, error) {
	token, err := dec.Token()
	return token, wrong(err)
}

// wrong says what is wrong with the text without repeating it.
func wrong(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body ends before its JSON does")
	}
	return fmt.Errorf("the body is not JSON: %w", err)
}
