// Package wire converts the messages of gRPC to the types of package api, and back: both are the same verbs, which one
// implementation serves. A field has the same name in both, but for its letters' case.
package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
)

// ToMessage converts a value of package api to a message. They may share memory afterwards.
func ToMessage[M, A any](value *A) *M {
	m := new(M)
	copyStruct(reflect.ValueOf(m).Elem(), reflect.ValueOf(value).Elem())
	return m
}

// FromMessage converts a message to a value of package api; nil is an empty message. Lists that JSON always has are not
// nil. They may share memory afterwards.
func FromMessage[A, M any](message *M) *A {
	if message == nil {
		message = new(M)
	}
	a := new(A)
	copyStruct(reflect.ValueOf(a).Elem(), reflect.ValueOf(message).Elem())
	return a
}

// copier copies a field of a struct, or several, from one struct to another.
type copier func(to, from reflect.Value)

// pair has the types of two structs: a message and a value, or the reverse.
type pair struct{ to, from reflect.Type }

var copyPlans sync.Map // of []copier by pair

// copyStruct copies all fields of a message to a value, or the reverse.
func copyStruct(to, from reflect.Value) {
	p := pair{to.Type(), from.Type()}
	plan, ok := copyPlans.Load(p)
	if !ok {
		plan = p.plan()
		copyPlans.Store(p, plan)
	}
	for _, copyField := range plan.([]copier) {
		copyField(to, from)
	}
}

var (
	messagePackage = reflect.TypeFor[pb.Request]().PkgPath()
	typeNumber     = reflect.TypeFor[json.Number]()
	typeCharges    = reflect.TypeFor[[]api.Charge]()
	typeAnswer     = reflect.TypeFor[api.Answer]()
)

// plan returns how to copy a struct.
func (p pair) plan() (list []copier) {
	toMessage := p.to.PkgPath() == messagePackage
	message, value := p.from, p.to
	if toMessage {
		message, value = p.to, p.from
	}
	switch {
	case value == typeAnswer && toMessage:
		return []copier{toAnswer}
	case value == typeAnswer:
		return []copier{fromAnswer}
	}
	for _, m := range reflect.VisibleFields(message) {
		if !m.IsExported() || strings.HasSuffix(m.Name, "Nanos") { // which go with the units
			continue
		}
		v, ok := value.FieldByNameFunc(func(name string) bool { return strings.EqualFold(name, m.Name) })
		if !ok {
			panic(fmt.Sprintf("%v has no field %s", value, m.Name))
		}
		nanos, _ := message.FieldByName(m.Name + "Nanos")
		amount := v.Type == typeNumber && m.Type.Kind() != reflect.String
		switch {
		case v.Type == typeCharges && toMessage:
			list = append(list, toCharges)
		case amount && toMessage:
			list = append(list, toAmount(m.Index, nanos.Index, v.Index))
		case amount:
			list = append(list, fromAmount(m.Index, nanos.Index, v.Index))
		default:
			flag, _ := value.FieldByName("No" + v.Name)
			list = append(list, fieldCopier(m, v, flag.Index, toMessage))
		}
	}
	return list
}

// fieldCopier returns what copies field m of a message to field v of a value, or the reverse. flag is the index of the
// value's flag that v is missing; nil: there is none.
func fieldCopier(m, v reflect.StructField, flag []int, toMessage bool) copier {
	if toMessage {
		return func(to, from reflect.Value) {
			if flag == nil || !from.FieldByIndex(flag).Bool() {
				convert(to.FieldByIndex(m.Index), from.FieldByIndex(v.Index))
			}
		}
	}
	always := v.Type.Kind() == reflect.Slice && !strings.HasSuffix(v.Tag.Get("json"), ",omitempty")
	return func(to, from reflect.Value) {
		out, in := to.FieldByIndex(v.Index), from.FieldByIndex(m.Index)
		convert(out, in)
		if flag != nil {
			to.FieldByIndex(flag).SetBool(in.IsNil())
		}
		if always && out.IsNil() {
			out.Set(reflect.MakeSlice(v.Type, 0, 0))
		}
	}
}

// convert copies a field to one that says the same in another type.
func convert(to, from reflect.Value) {
	switch {
	case to.Type() == from.Type():
		to.Set(from)
	case from.Kind() == reflect.Pointer:
		if !from.IsNil() {
			convert(to, from.Elem())
		} else if to.Kind() == reflect.Struct { // for its lists
			copyStruct(to, reflect.New(from.Type().Elem()).Elem())
		}
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		convert(to.Elem(), from)
	case to.Kind() == reflect.Struct:
		copyStruct(to, from)
	case to.Kind() == reflect.Slice:
		if from.IsNil() {
			return
		}
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			convert(to.Index(i), from.Index(i))
		}
	case to.Kind() == reflect.String:
		to.SetString(from.String())
	default:
		to.SetInt(from.Int())
	}
}

// toAmount returns what copies a number to the units and the billionths of a message.
func toAmount(units, nanos, number []int) copier {
	return func(to, from reflect.Value) {
		text := from.FieldByIndex(number).String()
		if text == "" {
			return
		}
		whole, rest, _ := api.Amount(json.Number(text)) // which api.Number has written
		convert(to.FieldByIndex(units), reflect.ValueOf(whole))
		to.FieldByIndex(nanos).SetInt(int64(rest))
	}
}

// fromAmount returns what copies the units and the billionths of a message to a number.
func fromAmount(units, nanos, number []int) copier {
	return func(to, from reflect.Value) {
		whole := from.FieldByIndex(units)
		if whole.Kind() == reflect.Pointer {
			if whole.IsNil() {
				return
			}
			whole = whole.Elem()
		}
		n := api.Number(whole.Int(), int32(from.FieldByIndex(nanos).Int())) //nolint:gosec // it is an int32
		to.FieldByIndex(number).SetString(n.String())
	}
}

// toCharges copies the charges of a request to a message, or its only charge.
func toCharges(to, from reflect.Value) {
	list := from.FieldByName("Charges")
	if list.IsNil() {
		list = reflect.ValueOf([]api.Charge{from.FieldByName("Charge").Interface().(api.Charge)})
	}
	convert(to.FieldByName("Charges"), list)
}

// toAnswer copies an answer of a batch to a message: a decision, or a problem.
func toAnswer(to, from reflect.Value) {
	a, m := from.Addr().Interface().(*api.Answer), to.Addr().Interface().(*pb.Answer)
	if a.Decision != nil {
		m.Result = &pb.Answer_Decision{Decision: ToMessage[pb.Decision](a.Decision)}
	} else if a.Problem != nil {
		m.Result = &pb.Answer_Problem{Problem: ToMessage[pb.Problem](a.Problem)}
	}
}

// fromAnswer copies an answer of a batch from a message. One that is neither stays empty.
func fromAnswer(to, from reflect.Value) {
	a, m := to.Addr().Interface().(*api.Answer), from.Addr().Interface().(*pb.Answer)
	if d := m.GetDecision(); d != nil {
		a.Decision = FromMessage[api.Decision](d)
	}
	if p := m.GetProblem(); p != nil {
		a.Problem = FromMessage[api.Problem](p)
	}
}
