package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/law"
)

// readStrictly is the reference for Read. It reads with encoding/json, and rejects separately what only Read rejects.
func readStrictly(data []byte, v any) error {
	if err := readLeniently(data, v); err != nil {
		return err
	}
	own, err := checkNames(data)
	if err := errors.Join(err, checkUnicode(own)); err != nil {
		return err
	}
	var generic any
	if err := json.Unmarshal(data, &generic); err != nil {
		return err
	}
	return setFlags(reflect.ValueOf(v).Elem(), generic)
}

// checkUnicode checks that all text is valid Unicode. data is JSON, so backslashes are only in text.
func checkUnicode(data []byte) error {
	if !utf8.Valid(data) {
		return errors.New("invalid UTF-8")
	}
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		if i++; i+5 > len(data) || data[i] != 'u' {
			continue
		}
		r, _ := strconv.ParseUint(string(data[i+1:i+5]), 16, 32)
		i += 4
		if !utf16.IsSurrogate(rune(r)) {
			continue
		}
		if i+7 > len(data) || data[i+1] != '\\' || data[i+2] != 'u' {
			return errors.New("half of a character")
		}
		low, _ := strconv.ParseUint(string(data[i+3:i+7]), 16, 32)
		if utf16.DecodeRune(rune(r), rune(low)) == utf8.RuneError {
			return errors.New("half of a character")
		}
		i += 6
	}
	return nil
}

// checkNames checks that the names of members are among memberNames, and that no object has a name twice. It looks into
// no usage, and returns data with blanks in the place of usages.
func checkNames(data []byte) (own []byte, err error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	own = bytes.Clone(data)
	var walk func() error
	walk = func() error {
		t, err := dec.Token()
		if err != nil {
			return err
		}
		names := map[any]bool{}
		for object := t == json.Delim('{'); (object || t == json.Delim('[')) && dec.More(); {
			if object {
				name, _ := dec.Token()
				if names[name] || !slices.Contains(memberNames, fmt.Sprint(name)) {
					return fmt.Errorf("%v stands twice, or is not known", name)
				}
				names[name] = true
				if name == usageName {
					var usage json.RawMessage
					if err := dec.Decode(&usage); err != nil {
						return err
					}
					end := int(dec.InputOffset())
					copy(own[end-len(usage):end], bytes.Repeat([]byte(" "), len(usage)))
					continue
				}
			}
			if err := walk(); err != nil {
				return err
			}
		}
		if _, open := t.(json.Delim); open {
			_, err = dec.Token()
		}
		return err
	}
	if err := walk(); !errors.Is(err, io.EOF) {
		return own, err
	}
	return own, nil
}

// setFlags sets NoKey and NoVersion where the key or the version is missing, removes a usage that is null, and rejects
// objects that are null and numbers and usages that Read rejects.
func setFlags(v reflect.Value, generic any) error {
	switch v.Kind() {
	case reflect.Slice:
		list, _ := generic.([]any)
		for i := range v.Len() {
			if err := setFlags(v.Index(i), list[i]); err != nil {
				return err
			}
		}
	case reflect.Struct:
		object, ok := generic.(map[string]any)
		if !ok {
			return errors.New("an object is null")
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			member := object[name]
			switch {
			case strings.HasPrefix(field.Name, "No"):
				v.Field(i).SetBool(object[strings.ToLower(field.Name[len("No"):])] == nil)
				continue
			case field.Anonymous:
				member = object
			case name == usageName:
				if _, isObject := member.(map[string]any); !isObject && member != nil {
					return errors.New("a usage is no object")
				} else if !isObject {
					v.Field(i).SetZero()
				}
				continue
			}
			if err := setFlags(v.Field(i), member); err != nil {
				return err
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return setFlags(v.Elem(), generic)
		}
	case reflect.Int, reflect.Int64:
		if n := v.Int(); n < 0 || n > 999_999_999_999_999_999 {
			return errors.New("number out of range")
		}
	}
	return nil
}

// compareStrict returns whether Read accepts data. It fails the test if readStrictly does not agree, but for -0.
func compareStrict(t *testing.T, data []byte, newValue func() any) (valid bool) {
	t.Helper()
	got, want := newValue(), newValue()
	err, wantErr := api.Read(data, got), readStrictly(data, want)
	var invalid *law.InvalidError
	switch {
	case err == nil && wantErr != nil:
		t.Errorf("%q was read as %T, but %v", data, got, wantErr)
	case err == nil && !equal(got, want):
		t.Errorf("%q: read %+v, want %+v", data, got, want)
	case err != nil && wantErr == nil && !bytes.Contains(data, []byte("-0")): // encoding/json takes -0 for an integer
		t.Errorf("%q was not read as %T: %v", data, got, err)
	case err != nil && (!errors.As(err, &invalid) || invalid.Field == "" || invalid.Problem == "" || !utf8.ValidString(err.Error())):
		t.Errorf("%q: %#v", data, err)
	}
	return err == nil
}

// equal compares values. An empty list equals an absent one.
func equal(a, b any) bool {
	format := func(v any) string {
		return strings.ReplaceAll(fmt.Sprintf("%#v", reflect.ValueOf(v).Elem()), "(nil)", "{}")
	}
	return reflect.DeepEqual(a, b) || format(a) == format(b)
}
