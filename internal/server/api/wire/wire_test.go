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
func there[M, A any](t *testing.T, changes ...func(*A)) {
	t.Helper()
	in := new(A)
	fill(reflect.ValueOf(in).Elem(), new(int))
	for _, change := range changes {
		change(in)
	}
	for _, sent := range []*A{in, new(A)} {
		data, err := proto.Marshal(any(wire.To[M](sent)).(proto.Message))
		if err != nil {
			t.Fatal(err)
		}
		m := new(M)
		if err := proto.Unmarshal(data, any(m).(proto.Message)); err != nil {
			t.Fatal(err)
		}
		got := wire.From[A](m)
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
	several := func(r *api.Request) { r.Charge = api.Charge{} }
	there[pb.Request, api.Request](t, several)
	there[pb.BatchRequest, api.Batch](t, func(b *api.Batch) { several(&b.Requests[0]); several(&b.Requests[1]) })
	there[pb.ReserveRequest, api.Reserve](t, func(r *api.Reserve) { several(&r.Request) })
	there[pb.SettleRequest, api.Settle](t, func(s *api.Settle) { s.Charge = api.Charge{} })
	there[pb.LeasesRequest, api.Leases](t)
	there[pb.InspectRequest, api.InspectRequest](t)
	there[pb.ResetRequest, api.ResetRequest](t)
	there[pb.BlockRequest, api.Block](t)
	there[pb.ExplainRequest, api.Explain](t)
	there[pb.ObserveRequest, api.Observe](t)
	there[pb.Decision, api.Decision](t)
	there[pb.Problem, api.Problem](t)
	there[pb.BatchResponse, api.Answers](t, func(a *api.Answers) {
		a.Answers[0].Problem, a.Answers[1].Decision = nil, nil
	})
	there[pb.FillUpResponse, api.Filled](t)
	there[pb.ReserveResponse, api.Reserved](t)
	there[pb.ExtendResponse, api.Extended](t)
	there[pb.SettleResponse, api.Settled](t)
	there[pb.AcquireResponse, api.Acquired](t)
	there[pb.LeasesResponse, api.Lost](t)
	there[pb.Status, api.Status](t)
	there[pb.ObserveResponse, api.Observed](t)
	there[pb.UsageResponse, api.Usage](t)
	there[pb.ListLimitsResponse, api.Limits](t)
	there[pb.ListCellsResponse, api.Cells](t)
	there[pb.ExplainResponse, api.Explanation](t)
	there[pb.ResetResponse, api.Reset](t)
	there[pb.SetLimitRequest, api.SetLimit](t)
	there[pb.SetOverrideRequest, api.Override](t)
	there[pb.SetPlanRequest, api.SetPlan](t)
	there[pb.RollbackRequest, api.Rollback](t)
	there[pb.ChangedResponse, api.Changed](t)
	there[pb.UsageRequest, api.UsageQuery](t)
}

// TestOneChargeIsAListOfOne: a message has no other place for it.
func TestOneChargeIsAListOfOne(t *testing.T) {
	t.Parallel()
	c := api.Charge{Limit: "login", Key: "k", Cost: "2", Keep: "10%"}
	got := wire.From[api.Request](wire.To[pb.Request](&api.Request{Charge: c, ID: "i"}))
	if want := (&api.Request{Charges: []api.Charge{c}, ID: "i"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAnEmptyAnswerIsRead: a server that says nothing about a decision stops no client.
func TestAnEmptyAnswerIsRead(t *testing.T) {
	t.Parallel()
	if d := wire.From[api.Decision]((*pb.Decision)(nil)); d == nil || d.Allowed {
		t.Errorf("no decision: %+v", d)
	}
	for _, list := range []any{
		wire.From[api.Usage](new(pb.UsageResponse)).Refusals, wire.From[api.Cells](new(pb.ListCellsResponse)).Cells,
		wire.From[api.Settled](new(pb.SettleResponse)).Corrected,
	} {
		if text(t, list) != "[]" {
			t.Errorf("%T is %s, want an empty list", list, text(t, list))
		}
	}
}
