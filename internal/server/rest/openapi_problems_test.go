package rest_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/memory"
)

// failingStore is a store whose Apply fails with err.
type failingStore struct {
	store.Store
	err error
}

func (s failingStore) Apply(context.Context, []law.Op, []law.Outcome) error { return s.err }

// problemCases has, for each example of a problem, paths and bodies of requests, of which the last one is answered with
// the problem. If err is not nil, the store fails with it.
var problemCases = map[string]struct {
	err      error
	requests [][2]string
}{
	"bad-request": {nil, [][2]string{{"/v1/take", `{"key":"alice"}`}}},
	"id-unknown":  {nil, [][2]string{{"/v1/settle", `{"limit":"token-bucket 5/1h","key":"alice","cost":1,"id":"x"}`}}},
	"id-reused": {nil, [][2]string{
		{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice","id":"x"}`},
		{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice","cost":2,"id":"x"}`},
	}},
	"id-settled": {nil, [][2]string{
		{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice","cost":3,"id":"x"}`},
		{"/v1/settle", `{"limit":"token-bucket 5/1h","key":"alice","cost":2,"id":"x"}`},
		{"/v1/settle", `{"limit":"token-bucket 5/1h","key":"alice","cost":1,"id":"x"}`},
	}},
	"unavailable":     {store.ErrUnavailable, [][2]string{{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice"}`}}},
	"busy":            {store.ErrBusy, [][2]string{{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice"}`}}},
	"full":            {store.ErrFull, [][2]string{{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice"}`}}},
	"outcome-unknown": {store.ErrUnknownOutcome, [][2]string{{"/v1/take", `{"limit":"token-bucket 5/1h","key":"alice"}`}}},
	"temporary-reduced-capacity": {store.ErrUnavailable, [][2]string{
		{"/v1/auth?limit=token-bucket+5/1h&key=alice", ""},
	}},
}

// TestProblemsOfTheDescription provokes each problem that the document has as an example.
func TestProblemsOfTheDescription(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	d := readDescription(t, h)
	const at = "#/components/responses/Problem/content/application~1problem+json"
	examples := d.doc
	for _, name := range []string{"components", "responses", "Problem", "content", "application/problem+json", "examples"} {
		examples = examples[name].(map[string]any)
	}
	for name := range problemCases {
		if examples[name] == nil {
			t.Errorf("%s is not described", name)
		}
	}
	for name, example := range examples {
		test, ok := problemCases[name]
		if !ok {
			t.Errorf("%s: problemCases lacks it", name)
			continue
		}
		var s store.Store = memory.New(nil)
		if test.err != nil {
			s = failingStore{s, test.err}
		}
		h := rest.New(service.New(headgate.New(s, nil), &config.Config{}, nil), slog.New(slog.DiscardHandler), nil)
		var w *httptest.ResponseRecorder
		for _, request := range test.requests {
			w = httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, request[0], strings.NewReader(request[1]))
			r.Header.Set("X-Forwarded-Uri", "/")
			h.ServeHTTP(w, r)
		}
		answer, err := jsonschema.UnmarshalJSON(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		d.check(t, at+"/schema", answer)
		want := plainJSON(t, example.(map[string]any)["value"])
		d.check(t, at+"/schema", want)
		if difference := compareAnswer("problem", answer, want); difference != "" {
			text, _ := json.Marshal(answer)
			t.Errorf("%s: %s: %s", name, difference, text)
		}
	}
}

// TestAllTypesOfProblemsAreShown checks that each of the 9 types which the schema lists has an example.
func TestAllTypesOfProblemsAreShown(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	d := readDescription(t, h)
	text, _ := json.Marshal(d.doc)
	var doc struct {
		Components struct {
			Schemas struct {
				Problem struct {
					Properties struct {
						Type struct {
							OneOf []struct{ Const string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if n := len(doc.Components.Schemas.Problem.Properties.Type.OneOf); n != 9 {
		t.Errorf("%d types are listed, want 9", n)
	}
	for _, typ := range doc.Components.Schemas.Problem.Properties.Type.OneOf {
		if !strings.Contains(string(text), `"type":"`+typ.Const+`"`) {
			t.Errorf("%s has no example", typ.Const)
		}
	}
}
