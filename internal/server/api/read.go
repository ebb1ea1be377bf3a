package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	"github.com/headgate/headgate/law"
)

const (
	// MaxCharges is the most charges of a request or a batch, and the most requests of a batch.
	MaxCharges = 10_000
	// MaxTexts is the most headers of a request, and the most limits that a rollback may name.
	MaxTexts = 1000
)

// Read reads one JSON value, an object, and nothing else into a struct of this package. It is stricter than
// encoding/json: a member that is unknown, in another case or twice in its object is an error, and so is text that is
// not valid Unicode. A member that is null counts as absent. Lists longer than [MaxCharges] or [MaxTexts] are rejected
// before they take memory. Errors are *[law.InvalidError]: their field is the member that is wrong, or "body" for the
// text as a whole, and their text has the byte, counted from 1.
func Read(data []byte, to any) error {
	s := scanner{data: data}
	if s.peek(); s.at == len(data) {
		return law.Invalid("body", `is empty; send JSON such as {"limit":"token-bucket 5/1m","key":"alice"}`)
	}
	if !s.object(reflect.ValueOf(to).Elem()) || !s.end() {
		s.setField("body")
		return s.err
	}
	return nil
}

var (
	typeNumber = reflect.TypeFor[json.Number]()
	typeRaw    = reflect.TypeFor[json.RawMessage]()
)

// value reads a value. present is false if it is null, which leaves the target unchanged.
func (s *scanner) value(to reflect.Value) (present, ok bool) {
	switch kind := to.Kind(); {
	case kind == reflect.Struct:
		return true, s.object(to)
	case kind == reflect.Map:
		return true, s.texts(to)
	case s.word("null"):
		return false, true
	case kind == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		return s.value(to.Elem())
	case to.Type() == typeRaw:
		return true, s.raw(to)
	case kind == reflect.Slice:
		return true, s.list(to)
	case kind == reflect.Bool:
		isTrue := s.word("true")
		ok = isTrue || s.word("false") || s.mismatch("true or false")
		to.SetBool(isTrue)
	case to.CanInt():
		var n int64
		n, ok = s.integer()
		to.SetInt(n)
	default:
		var text []byte
		if to.Type() == typeNumber {
			text, ok = s.decimal()
		} else {
			text, ok = s.text()
		}
		to.SetString(string(text))
	}
	return true, ok
}

func (s *scanner) object(to reflect.Value) bool {
	f := fieldsOf(to.Type())
	for _, flag := range f.flags {
		to.FieldByIndex(flag).SetBool(true)
	}
	seen := uint64(0)
	return s.members(func(at int, name []byte) bool {
		member := f.byName[string(name)]
		switch {
		case member == nil:
			return s.unknown(at, name)
		case seen&member.bit != 0:
			return s.wrong(at, "stands twice in one object")
		}
		seen |= member.bit
		present, ok := s.value(member.in(to))
		if present && member.flag != nil {
			to.FieldByIndex(member.flag).SetBool(false)
		}
		return ok
	})
}

// raw reads an object whose format is another's, and keeps its text as it is.
func (s *scanner) raw(to reflect.Value) bool {
	if s.peek() != '{' {
		return s.mismatch("an object")
	}
	from := json.NewDecoder(bytes.NewReader(s.data[s.at:]))
	var text json.RawMessage
	if err := from.Decode(&text); err != nil {
		return s.fail("body", "is not JSON (at byte %d): %v", s.at+1, err)
	}
	s.at += int(from.InputOffset())
	to.SetBytes(text)
	return true
}

func (s *scanner) texts(to reflect.Value) bool {
	list := map[string]string{}
	to.Set(reflect.ValueOf(list))
	return s.members(func(_ int, name []byte) bool {
		if _, twice := list[string(name)]; twice {
			return s.wrong(s.at, "stands twice in one object")
		}
		if len(list) == MaxTexts {
			return s.wrong(s.at, "is one of more than %d", MaxTexts)
		}
		var value string
		_, ok := s.value(reflect.ValueOf(&value).Elem())
		list[string(name)] = value
		return ok
	})
}

// list reads an array into a slice. It counts the innermost objects of nested arrays, which are the charges.
func (s *scanner) list(to reflect.Value) bool {
	if !s.skip('[') {
		return s.mismatch("an array")
	}
	to.Set(reflect.MakeSlice(to.Type(), 0, 0))
	if s.skip(']') {
		return true
	}
	maxLen, ofObjects := MaxTexts, to.Type().Elem().Kind() == reflect.Struct
	if ofObjects {
		maxLen = MaxCharges
	}
	isOutermost := !s.nested
	s.nested = true
	for n := 0; ; n++ {
		if n == maxLen {
			return s.wrong(s.at, "are more than %d", maxLen)
		}
		to.Grow(1)
		to.SetLen(n + 1)
		objectsBefore := s.objects
		if _, ok := s.value(to.Index(n)); !ok {
			return false
		}
		if ofObjects && s.objects == objectsBefore {
			s.objects++
		}
		if isOutermost && s.objects > MaxCharges {
			return s.wrong(s.at, "carry more than %d charges", MaxCharges)
		}
		if !s.skip(',') {
			s.nested = !isOutermost
			return s.skip(']') || s.noJSON(`"," or "]"`)
		}
	}
}

func (s *scanner) unknown(at int, name []byte) bool {
	hint := ""
	if !bytes.Equal(bytes.ToLower(name), name) {
		hint = "; names are in lower case"
	}
	s.wrong(at, "has an unknown field %+.40q%s", name, hint)
	return s.setField("body")
}

// fields has the fields of a struct that are members of a JSON object.
type fields struct {
	byName map[string]*field
	flags  [][]int // indexes of all flags for missing fields
}

type field struct {
	bit   uint64 // another one for each field, so there are at most 64
	index []int
	flag  []int // index of the flag that the field is missing, such as NoKey for Key; nil: there is no flag
}

// in returns the field of a struct. It allocates embedded structs on the way that are nil.
func (f *field) in(v reflect.Value) reflect.Value {
	for _, i := range f.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

var fieldsCache sync.Map // reflect.Type to *fields

// fieldsOf returns the fields of a struct type, and caches them.
func fieldsOf(t reflect.Type) *fields {
	if f, ok := fieldsCache.Load(t); ok {
		return f.(*fields)
	}
	out := &fields{byName: map[string]*field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		member := &field{bit: 1 << len(out.byName), index: f.Index}
		if flag, ok := t.FieldByName("No" + f.Name); ok {
			member.flag = flag.Index
			out.flags = append(out.flags, flag.Index)
		}
		out.byName[name] = member
	}
	fieldsCache.Store(t, out)
	return out
}

// decimal reads a number, which may stand in quotes.
func (s *scanner) decimal() ([]byte, bool) {
	if s.peek() != '"' {
		return s.number()
	}
	at := s.at
	text, ok := s.text()
	if !ok {
		return nil, false
	}
	inner := scanner{data: text}
	if n, ok := inner.number(); !ok || len(n) == 0 || len(n) != len(text) {
		return nil, s.wrong(at, "%+.40q is not a number", text)
	}
	return text, true
}

// setField sets the field of the error, unless a member within it has already set one. It returns false.
func (s *scanner) setField(name string) bool {
	if s.err.Field == "" {
		s.err.Field = name
	}
	return false
}
