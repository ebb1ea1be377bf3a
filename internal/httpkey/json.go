package httpkey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// JSONNumber returns the number at a path in a JSON text, such as usage.total_tokens: names of members
// with dots between them. An empty path is the whole text. Of two members of one name the first counts.
func JSONNumber(text []byte, path string) (json.Number, error) {
	value, _, err := findMember(text, path)
	if err != nil {
		return "", err
	}
	token, err := nextToken(newDecoder(value))
	if err != nil {
		return "", err
	}
	number, ok := token.(json.Number)
	if !ok {
		return "", fmt.Errorf("%s is not a number", pathName(path))
	}
	return number, nil
}

// JSONLength returns how many elements the array at a path has; paths are as in [JSONNumber]. A text that
// has a member of the path twice, in whatever case, is an error: some decoders take the last member, or
// ignore case, and would read another array than the one that is counted.
func JSONLength(text []byte, path string) (int, error) {
	value, ambiguous, err := findMember(text, path)
	switch {
	case err != nil:
		return 0, err
	case ambiguous:
		return 0, fmt.Errorf("%s stands twice in the body", path)
	}
	dec := newDecoder(value)
	if token, err := nextToken(dec); err != nil {
		return 0, err
	} else if token != json.Delim('[') {
		return 0, fmt.Errorf("%s is not an array", pathName(path))
	}
	n := 0
	for ; dec.More(); n++ {
		var element json.RawMessage
		if err := describeError(dec.Decode(&element)); err != nil {
			return 0, err
		}
	}
	_, err = nextToken(dec) // the end of the array: there may be none
	return n, err
}

func pathName(path string) string {
	if path == "" {
		return "the body"
	}
	return path
}

// findMember returns the value at a path. ambiguous is true if an object has a member of the path twice, in
// whatever case.
func findMember(text []byte, path string) (value json.RawMessage, ambiguous bool, err error) {
	value = text
	for member := range strings.SplitSeq(path, ".") {
		if path == "" {
			break
		}
		dec := newDecoder(value)
		token, err := nextToken(dec)
		if err != nil {
			return nil, false, err
		}
		value = nil
		similar := 0
		for token == json.Delim('{') && dec.More() {
			memberName, err := nextToken(dec)
			if err != nil {
				return nil, false, err
			}
			var v json.RawMessage
			if err := describeError(dec.Decode(&v)); err != nil {
				return nil, false, err
			}
			if memberName == member && value == nil {
				value = v
			}
			if memberName, ok := memberName.(string); ok && strings.EqualFold(memberName, member) {
				similar++
			}
		}
		if value == nil {
			return nil, false, fmt.Errorf("there is no %s in the body", path)
		}
		if _, err := nextToken(dec); err != nil { // the end of the object: there may be none
			return nil, false, err
		}
		ambiguous = ambiguous || similar > 1
	}
	return value, ambiguous, nil
}

func newDecoder(text []byte) *json.Decoder {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	return dec
}

func nextToken(dec *json.Decoder) (json.Token, error) {
	token, err := dec.Token()
	return token, describeError(err)
}

// describeError returns an error that says what is wrong with the text, without quoting the text.
func describeError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body ends before its JSON does")
	}
	return fmt.Errorf("the body is not JSON: %w", err)
}
