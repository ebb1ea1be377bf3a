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
	// MaxCharges is how many charges one request or batch may carry, and how many requests a batch may have.
	MaxCharges = 10_000
	// MaxTexts is how many headers a request may have, and how many limits a rollback may name.
	MaxTexts = 1000
)

// Read reads one JSON value, an object, and nothing else into a struct of this package. It is stricter than
// encoding/json: a member that is not known, is written in other case or stands twice in its object is an error, and
// so is text that is not valid Unicode. A member that is null counts as absent. What would pass [MaxCharges] or
// [MaxTexts] is refused before it takes memory. Errors are *[law.InvalidError]: their field is the member that is
// wrong, or "body" for the text as a whole, and they say at which byte it is, counted from 1.
func Read(data []byte, to any) error {
	s := scanner{data: data}
	if s.peek(); s.at == len(data) {
		return law.Invalid("body", `is empty; send JSON such as {"limit":"token-bucket 5/1m","key":"alice"}`)
	}
	if !s.object(reflect.ValueOf(to).Elem()) || !s.end() {
		s.named("body")
		return s.err
	}
	return nil
}

var typeNumber = reflect.TypeFor[json.Number]()

// value reads a value. It reports whether there is one: a null leaves things as they are.
func (s *scanner) value(to reflect.Value) (there, ok bool) {
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
	case kind == reflect.Slice:
		return true, s.list(to)
	case kind == reflect.Bool:
		is := s.word("true")
		ok = is || s.word("false") || s.mismatch("true or false")
		to.SetBool(is)
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

// object reads an object into a struct.
func (s *scanner) object(to reflect.Value) bool {
	f := fieldsOf(to.Type())
	for _, flag := range f.missing {
		to.FieldByIndex(flag).SetBool(true)
	}
	seen := uint64(0)
	return s.members(func(at int, name []byte) bool {
		one := f.named[string(name)]
		switch {
		case one == nil:
			return s.unknown(at, name)
		case seen&one.bit != 0:
			return s.wrong(at, "stands twice in one object")
		}
		seen |= one.bit
		there, ok := s.value(one.of(to))
		if there && one.missing != nil {
			to.FieldByIndex(one.missing).SetBool(false)
		}
		return ok
	})
}

// texts reads an object of texts into a map.
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

// list reads an array into a slice. Of objects within objects, those that have no others in them are counted.
func (s *scanner) list(to reflect.Value) bool {
	if !s.skip('[') {
		return s.mismatch("an array")
	}
	to.Set(reflect.MakeSlice(to.Type(), 0, 0))
	if s.skip(']') {
		return true
	}
	most, objects := MaxTexts, to.Type().Elem().Kind() == reflect.Struct
	if objects {
		most = MaxCharges
	}
	outer := !s.nested
	s.nested = true
	for n := 0; ; n++ {
		if n == most {
			return s.wrong(s.at, "are more than %d", most)
		}
		to.Grow(1)
		to.SetLen(n + 1)
		before := s.objects
		if _, ok := s.value(to.Index(n)); !ok {
			return false
		}
		if objects && s.objects == before {
			s.objects++
		}
		if outer && s.objects > MaxCharges {
			return s.wrong(s.at, "carry more than %d charges", MaxCharges)
		}
		if !s.skip(',') {
			s.nested = !outer
			return s.skip(']') || s.noJSON(`"," or "]"`)
		}
	}
}

// unknown reports an unknown name.
func (s *scanner) unknown(at int, name []byte) bool {
	hint := ""
	if !bytes.Equal(bytes.ToLower(name), name) {
		hint = "; names are in lower case"
	}
	s.wrong(at, "has an unknown field %+.40q%s", name, hint)
	return s.named("body")
}

// fields has the fields of a struct that JSON names.
type fields struct {
	named   map[string]*field
	missing [][]int // where the flags are of those that are not missing as long as they are zero
}

// field is one of them.
type field struct {
	bit     uint64 // that no other one has
	index   []int
	missing []int // where the flag is that says that there is none, such as NoKey beside Key; nil: there is no flag
}

// of returns the field of a struct, for which it makes those that it is in.
func (f *field) of(v reflect.Value) reflect.Value {
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

var known sync.Map // of *fields, by the reflect.Type

func fieldsOf(t reflect.Type) *fields {
	if f, ok := known.Load(t); ok {
		return f.(*fields)
	}
	out := &fields{named: map[string]*field{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		one := &field{bit: 1 << len(out.named), index: f.Index}
		if flag, ok := t.FieldByName("No" + f.Name); ok {
			one.missing = flag.Index
			out.missing = append(out.missing, flag.Index)
		}
		out.named[name] = one
	}
	known.Store(t, out)
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
	within := scanner{data: text}
	if n, ok := within.number(); !ok || len(n) == 0 || len(n) != len(text) {
		return nil, s.wrong(at, "%+.40q is not a number", text)
	}
	return text, true
}

// named names the member that is wrong, unless something within it was named.
func (s *scanner) named(name string) bool {
	if s.err.Field == "" {
		s.err.Field = name
	}
	return false
}
