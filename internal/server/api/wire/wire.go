// Package wire turns the messages of gRPC into the types of package api, and back: both are the same
// verbs, which one implementation serves. A field has the same name in both, but for its letters' case.
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

// To returns a value of package api as a message. They may share memory afterwards.
func To[M, A any](value *A) *M {
	m := new(M)
	structs(reflect.ValueOf(m).Elem(), reflect.ValueOf(value).Elem())
	return m
}

// From returns a message as a value of package api; nil is an empty message. Lists that JSON always has are not nil.
// They may share memory afterwards.
func From[A, M any](message *M) *A {
	if message == nil {
		message = new(M)
	}
	a := new(A)
	structs(reflect.ValueOf(a).Elem(), reflect.ValueOf(message).Elem())
	return a
}

// step copies a field, or several.
type step func(to, from reflect.Value)

// pair are the types of two structs.
type pair struct{ to, from reflect.Type }

var plans sync.Map // of []step by pair

// structs copies all fields. One of the structs is a message.
func structs(to, from reflect.Value) {
	p := pair{to.Type(), from.Type()}
	plan, ok := plans.Load(p)
	if !ok {
		plan = p.plan()
		plans.Store(p, plan)
	}
	for _, copies := range plan.([]step) {
		copies(to, from)
	}
}

var (
	messages    = reflect.TypeFor[pb.Request]().PkgPath()
	typeNumber  = reflect.TypeFor[json.Number]()
	typeCharges = reflect.TypeFor[[]api.Charge]()
	typeAnswer  = reflect.TypeFor[api.Answer]()
)

// plan returns how to copy a struct.
func (p pair) plan() (list []step) {
	toMessage := p.to.PkgPath() == messages
	message, value := p.from, p.to
	if toMessage {
		message, value = p.to, p.from
	}
	switch {
	case value == typeAnswer && toMessage:
		return []step{toAnswer}
	case value == typeAnswer:
		return []step{fromAnswer}
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
			list = append(list, field(m, v, flag.Index, toMessage))
		}
	}
	return list
}

// field returns what copies a field of a message and of a value. flag is where the value says that it has none; nil:
// it does not.
func field(m, v reflect.StructField, flag []int, toMessage bool) step {
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
			structs(to, reflect.New(from.Type().Elem()).Elem())
		}
	case to.Kind() == reflect.Pointer:
		to.Set(reflect.New(to.Type().Elem()))
		convert(to.Elem(), from)
	case to.Kind() == reflect.Struct:
		structs(to, from)
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
func toAmount(units, nanos, number []int) step {
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

// fromAmount converts back.
func fromAmount(units, nanos, number []int) step {
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

// toCharges copies the charge of a request, or its charges.
func toCharges(to, from reflect.Value) {
	list := from.FieldByName("Charges")
	if list.IsNil() {
		list = reflect.ValueOf([]api.Charge{from.FieldByName("Charge").Interface().(api.Charge)})
	}
	convert(to.FieldByName("Charges"), list)
}

// toAnswer copies an answer of a batch: a decision, or a problem.
func toAnswer(to, from reflect.Value) {
	a, m := from.Addr().Interface().(*api.Answer), to.Addr().Interface().(*pb.Answer)
	if a.Decision != nil {
		m.Result = &pb.Answer_Decision{Decision: To[pb.Decision](a.Decision)}
	} else if a.Problem != nil {
		m.Result = &pb.Answer_Problem{Problem: To[pb.Problem](a.Problem)}
	}
}

// fromAnswer converts back. One that is neither is empty.
func fromAnswer(to, from reflect.Value) {
	a, m := to.Addr().Interface().(*api.Answer), from.Addr().Interface().(*pb.Answer)
	if d := m.GetDecision(); d != nil {
		a.Decision = From[api.Decision](d)
	}
	if p := m.GetProblem(); p != nil {
		a.Problem = From[api.Problem](p)
	}
}
