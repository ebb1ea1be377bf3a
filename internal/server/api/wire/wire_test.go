package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fill sets every field of a value, each to another one, so that one that is lost or taken for another is seen.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.String: // also of a json.Number
		v.SetString(fmt.Sprint(*n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"A": "b", "C": "d"}))
	case reflect.Struct:
		for i := range v.NumField() {
			switch v.Type().Field(i).Name {
			case "NoKey", "NoVersion": // they are there
			case "Prefix", "Until": // not sent
			default:
				fill(v.Field(i), n)
			}
		}
	default:
		panic("a field of type " + v.Type().String())
	}
}

// there sends a filled value as a message, and compares it with what is read of it. changes remove what a message has
// no room for.
func there[A, M any](t *testing.T, to func(*A) M, from func(M) *A, changes ...func(*A)) {
	t.Helper()
	in := new(A)
	fill(reflect.ValueOf(in).Elem(), new(int))
	for _, change := range changes {
		change(in)
	}
	for _, sent := range []*A{in, new(A)} {
		data, err := proto.Marshal(any(to(sent)).(proto.Message))
		if err != nil {
			t.Fatal(err)
		}
		m := reflect.New(reflect.TypeFor[M]().Elem()).Interface().(M)
		if err := proto.Unmarshal(data, any(m).(proto.Message)); err != nil {
			t.Fatal(err)
		}
		got := from(m)
		if sent == in && !reflect.DeepEqual(got, in) {
			t.Errorf("%T: sent\n%+v\nread\n%+v", in, text(t, in), text(t, got))
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestEveryFieldArrives sends each type as a message, with all of its fields and with none.
func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	one := func(r *api.Request) { r.Charges = nil }
	several := func(r *api.Request) { r.Charge = api.Charge{NoKey: true} }
	there(t, wire.RequestOf, wire.Request, one)
	there(t, wire.RequestOf, wire.Request, several)
	there(t, wire.BatchOf, wire.Batch, func(b *api.Batch) { one(&b.Requests[0]); several(&b.Requests[1]) })
	there(t, wire.ReserveOf, wire.Reserve, func(r *api.Reserve) { one(&r.Request) })
	there(t, wire.SettleOf, wire.Settle, func(s *api.Settle) { s.Charges = nil })
	there(t, wire.LeasesOf, wire.Leases)
	there(t, wire.InspectOf, wire.Inspect)
	there(t, wire.ResetOf, wire.Reset)
	there(t, wire.BlockOf, wire.Block)
	there(t, wire.ExplainOf, wire.Explain)
	there(t, wire.ObserveOf, wire.Observe)
	there(t, wire.DecisionOf, wire.Decision)
	there(t, wire.ProblemOf, wire.Problem)
	there(t, wire.AnswersOf, wire.Answers, func(a *api.Answers) {
		a.Answers[0].Problem, a.Answers[1].Decision = nil, nil
	})
	there(t, wire.FilledOf, wire.Filled)
	there(t, wire.ReservedOf, wire.Reserved)
	there(t, wire.ExtendedOf, wire.Extended)
	there(t, wire.SettledOf, wire.Settled)
	there(t, wire.AcquiredOf, wire.Acquired)
	there(t, wire.LostOf, wire.Lost)
	there(t, wire.StatusOf, wire.Status)
	there(t, wire.ObservedOf, wire.Observed)
	there(t, wire.UsageOf, wire.Usage)
	there(t, wire.LimitsOf, wire.Limits)
	there(t, wire.CellsOf, wire.Cells)
	there(t, wire.ExplanationOf, wire.Explanation)
	there(t, wire.ForgottenOf, wire.Forgotten)
	there(t, wire.SetLimitOf, wire.SetLimit)
	there(t, wire.OverrideOf, wire.Override)
	there(t, wire.SetPlanOf, wire.SetPlan)
	there(t, wire.RollbackOf, wire.Rollback)
	there(t, wire.ChangedOf, wire.Changed)
}

// TestAnEmptyAnswerIsRead: a server that says nothing about a decision stops no client.
func TestAnEmptyAnswerIsRead(t *testing.T) {
	t.Parallel()
	if d := wire.Decision(nil); d == nil || d.Allowed {
		t.Errorf("no decision: %+v", d)
	}
	for _, list := range []any{wire.Usage(nil).Refusals, wire.Cells(nil).Cells, wire.Settled(nil).Corrected} {
		if text(t, list) != "[]" {
			t.Errorf("%T is %s, want an empty list", list, text(t, list))
		}
	}
}
