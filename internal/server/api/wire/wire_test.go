package wire_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/internal/server/api"
	pb "github.com/headgate/headgate/internal/server/api/headgatepb"
	"github.com/headgate/headgate/internal/server/api/wire"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fill sets the fields of a value that messages have, numbers and texts each to another value, so that a field that is
// lost or swapped shows. n counts the values.
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
			case "NoKey", "NoVersion": // false, since the key and the version are set
			case "Prefix", "Until", "Count", "Used": // not sent, or by HTTP alone
			default:
				fill(v.Field(i), n)
			}
		}
	default:
		panic("a field of type " + v.Type().String())
	}
}

// checkRoundTrip compares a filled value with what is read of its message. changes clear fields that the message lacks.
func checkRoundTrip[M, A any](t *testing.T, changes ...func(*A)) {
	t.Helper()
	filled := new(A)
	fill(reflect.ValueOf(filled).Elem(), new(int))
	for _, change := range changes {
		change(filled)
	}
	for _, sent := range []*A{filled, new(A)} {
		data, err := proto.Marshal(any(wire.ToMessage[M](sent)).(proto.Message))
		if err != nil {
			t.Fatal(err)
		}
		m := new(M)
		if err := proto.Unmarshal(data, any(m).(proto.Message)); err != nil {
			t.Fatal(err)
		}
		got := wire.FromMessage[A](m)
		if sent == filled && !reflect.DeepEqual(got, filled) {
			t.Errorf("%T: got\n%+v\nwant\n%+v", filled, text(t, got), text(t, filled))
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

// TestEveryFieldArrives sends each type as a message, with all of its fields and with none of them.
func TestEveryFieldArrives(t *testing.T) {
	t.Parallel()
	unset := func(r *api.Request) { r.Charge = api.Charge{} }
	checkRoundTrip[pb.Request, api.Request](t, unset)
	checkRoundTrip[pb.BatchRequest, api.Batch](t, func(b *api.Batch) { unset(&b.Requests[0]); unset(&b.Requests[1]) })
	checkRoundTrip[pb.ReserveRequest, api.Reserve](t, func(r *api.Reserve) { unset(&r.Request) })
	checkRoundTrip[pb.SettleRequest, api.Settle](t, func(s *api.Settle) { s.Charge = api.Charge{} })
	checkRoundTrip[pb.LeasesRequest, api.Leases](t)
	checkRoundTrip[pb.InspectRequest, api.InspectRequest](t)
	checkRoundTrip[pb.ResetRequest, api.ResetRequest](t)
	checkRoundTrip[pb.BlockRequest, api.Block](t)
	checkRoundTrip[pb.ExplainRequest, api.Explain](t)
	checkRoundTrip[pb.ObserveRequest, api.Observe](t)
	checkRoundTrip[pb.Decision, api.Decision](t)
	checkRoundTrip[pb.Problem, api.Problem](t)
	checkRoundTrip[pb.BatchResponse, api.Answers](t, func(a *api.Answers) {
		a.Answers[0].Problem, a.Answers[1].Decision = nil, nil
	})
	checkRoundTrip[pb.FillUpResponse, api.Filled](t)
	checkRoundTrip[pb.ReserveResponse, api.Reserved](t)
	checkRoundTrip[pb.ExtendResponse, api.Extended](t)
	checkRoundTrip[pb.SettleResponse, api.Settled](t)
	checkRoundTrip[pb.AcquireResponse, api.Acquired](t)
	checkRoundTrip[pb.LeasesResponse, api.Lost](t)
	checkRoundTrip[pb.Status, api.Status](t)
	checkRoundTrip[pb.ObserveResponse, api.Observed](t)
	checkRoundTrip[pb.UsageResponse, api.Usage](t)
	checkRoundTrip[pb.ListLimitsResponse, api.Limits](t)
	checkRoundTrip[pb.ListCellsResponse, api.Cells](t)
	checkRoundTrip[pb.ExplainResponse, api.Explanation](t)
	checkRoundTrip[pb.ResetResponse, api.Reset](t)
	checkRoundTrip[pb.SetLimitRequest, api.SetLimit](t)
	checkRoundTrip[pb.SetOverrideRequest, api.Override](t)
	checkRoundTrip[pb.SetPlanRequest, api.SetPlan](t)
	checkRoundTrip[pb.RollbackRequest, api.Rollback](t)
	checkRoundTrip[pb.ChangedResponse, api.Changed](t)
	checkRoundTrip[pb.UsageRequest, api.UsageQuery](t)
}

// TestOneChargeIsAListOfOne checks that a request's single charge becomes a list, which is all that a message has.
func TestOneChargeIsAListOfOne(t *testing.T) {
	t.Parallel()
	c := api.Charge{Limit: "login", Key: "k", Cost: "2", Keep: "10%"}
	got := wire.FromMessage[api.Request](wire.ToMessage[pb.Request](&api.Request{Charge: c, ID: "i"}))
	if want := (&api.Request{Charges: []api.Charge{c}, ID: "i"}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestAnEmptyAnswerIsRead checks that a client reads a missing decision as refused, and missing lists as empty.
func TestAnEmptyAnswerIsRead(t *testing.T) {
	t.Parallel()
	if d := wire.FromMessage[api.Decision]((*pb.Decision)(nil)); d == nil || d.Allowed {
		t.Errorf("no decision: got %+v, want one that is not allowed", d)
	}
	for _, list := range []any{
		wire.FromMessage[api.Usage](new(pb.UsageResponse)).Refusals,
		wire.FromMessage[api.Cells](new(pb.ListCellsResponse)).Cells,
		wire.FromMessage[api.Settled](new(pb.SettleResponse)).Corrected,
	} {
		if text(t, list) != "[]" {
			t.Errorf("%T is %s, want an empty list", list, text(t, list))
		}
	}
}
