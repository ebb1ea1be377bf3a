package rest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/replay"
	"github.com/headgate/headgate/internal/server/api"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/server/traffic"
	"github.com/headgate/headgate/internal/server/whatif"
	"github.com/headgate/headgate/store/memory"
)

// description is the OpenAPI document, and a compiler of its schemas.
type description struct {
	Info  struct{ Config string }
	Paths []operation
	all   map[string]any
	c     *jsonschema.Compiler
}

// operation is a method of a path, in the order of the document.
type operation struct {
	Method, Path string
	At           string // JSON pointer
	operationBody
}

type operationBody struct {
	Parameters []struct {
		Name, In string
		Example  any
	}
	RequestBody struct{ Content map[string]media } `yaml:"requestBody"`
	Responses   map[string]struct {
		Ask     struct{ Query map[string]any } `yaml:"x-headgate-ask"`
		Headers map[string]struct{ Example any }
		Content map[string]media
	}
}

type media struct{ Example any }

// described reads the document as the server sends it.
func described(t *testing.T, h http.Handler) *description {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	var doc struct {
		Info struct {
			Config string `yaml:"x-headgate-config"`
		}
		Paths yaml.Node
	}
	d := &description{c: jsonschema.NewCompiler()}
	if err := yaml.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(w.Body.Bytes(), &d.all); err != nil {
		t.Fatal(err)
	}
	d.Info.Config = doc.Info.Config
	for i := 0; i < len(doc.Paths.Content); i += 2 {
		path, methods := doc.Paths.Content[i].Value, doc.Paths.Content[i+1]
		for k := 0; k < len(methods.Content); k += 2 {
			op := operation{Method: strings.ToUpper(methods.Content[k].Value), Path: path}
			op.At = "#/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + methods.Content[k].Value
			if err := methods.Content[k+1].Decode(&op.operationBody); err != nil {
				t.Fatal(err)
			}
			d.Paths = append(d.Paths, op)
		}
	}
	d.c.DefaultDraft(jsonschema.Draft2020)
	if err := d.c.AddResource("openapi.json", plainJSON(t, d.all)); err != nil {
		t.Fatal(err)
	}
	return d
}

// plainJSON returns what the validator takes: numbers are exact, names are text.
func plainJSON(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// check validates a value by the schema at a JSON pointer.
func (d *description) check(t *testing.T, at string, value any) {
	t.Helper()
	schema, err := d.c.Compile("openapi.json" + at)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", at, err)
	}
}

// query returns the examples of the parameters, with other values for some.
func (o *operation) query(other map[string]any) string {
	if other == nil {
		other = map[string]any{}
		for _, p := range o.Parameters {
			if p.In == "query" && p.Example != nil {
				other[p.Name] = p.Example
			}
		}
	}
	var parts []string
	for _, p := range o.Parameters { // the order is that of the document
		value, ok := other[p.Name]
		if !ok || p.In != "query" {
			continue
		}
		list, several := value.([]any)
		if !several {
			list = []any{value}
		}
		for _, v := range list {
			parts = append(parts, url.QueryEscape(p.Name)+"="+url.QueryEscape(fmt.Sprint(v)))
		}
	}
	return strings.Join(parts, "&")
}

// sameAnswer returns where an answer differs from its example.
func sameAnswer(name string, got, want any) string {
	switch want := want.(type) {
	case map[string]any:
		got, _ := got.(map[string]any)
		for member := range got {
			if _, ok := want[member]; !ok {
				return fmt.Sprintf("%s.%s is not in the example", name, member)
			}
		}
		for member := range want {
			if _, ok := got[member]; !ok {
				return fmt.Sprintf("%s.%s is not in the answer", name, member)
			}
			if wrong := sameAnswer(name+"."+member, got[member], want[member]); wrong != "" {
				return wrong
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s has %d items, not %d", name, len(list), len(want))
		}
		for i := range want {
			if wrong := sameAnswer(fmt.Sprintf("%s[%d]", name, i), list[i], want[i]); wrong != "" {
				return wrong
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%s is %v, not %v", name, got, want)
	}
	return ""
}

// TestExamplesOfTheDescription sends all requests of the document to one server, in their order, and
// compares its answers with those of the document.
func TestExamplesOfTheDescription(t *testing.T) {
	t.Parallel()
	h, _ := handler(t, "")
	d := described(t, h)
	c, err := config.Parse("headgate.yaml", []byte(d.Info.Config))
	if err != nil {
		t.Fatal(err)
	}
	h = serveCatalog(t, c)
	for i := range d.Paths {
		op := &d.Paths[i]
		for _, status := range []string{"200", "204", "429"} {
			if _, ok := op.Responses[status]; ok {
				d.try(t, h, op, status)
			}
		}
	}
}

// serveCatalog serves limits of a catalog that a file was applied to, as headgate serve does, while the
// store's clock stands still.
func serveCatalog(t *testing.T, c *config.Config) http.Handler {
	t.Helper()
	const now = 1795600000_000000
	s := memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }})
	quiet := slog.New(slog.DiscardHandler)
	limits, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := limits.Apply(t.Context(), catalog.By{}, c.Defines(), catalog.Once); err != nil {
		t.Fatal(err)
	}
	// What was decided is told when its second is over.
	var told atomic.Bool
	of := traffic.New(&traffic.Config{Clock: func() time.Time {
		if told.Load() {
			return time.UnixMicro(now).Add(time.Second)
		}
		return time.UnixMicro(now)
	}})
	l := headgate.New(s, &headgate.Config{Names: limits, Observer: service.Observers{of}})
	front := service.New(l, c, limits)
	front.UseTraffic(of)
	logs := whatif.New(&whatif.Config{Names: limits, Limiter: l, Now: func() time.Time { return time.UnixMicro(now) }})
	t.Cleanup(logs.Close)
	h := rest.New(front, quiet, &rest.Config{More: logs.Routes()})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told.Store(r.URL.Path == "/v1/traffic")
		h.ServeHTTP(w, r)
	})
}

// try sends the request of an operation and compares the answer with that of a status.
func (d *description) try(t *testing.T, h http.Handler, op *operation, status string) {
	t.Helper()
	const kind = "application/json"
	var body []byte
	if content, ok := op.RequestBody.Content[kind]; ok {
		d.check(t, op.At+"/requestBody/content/application~1json/schema", plainJSON(t, content.Example))
		body, _ = json.Marshal(content.Example)
	}
	if content, ok := op.RequestBody.Content["text/plain"]; ok {
		body = []byte(content.Example.(string))
	}
	want := op.Responses[status]
	r := httptest.NewRequest(op.Method, op.Path+"?"+op.query(want.Ask.Query), bytes.NewReader(body))
	for _, p := range op.Parameters {
		if p.In == "header" {
			r.Header.Set(p.Name, fmt.Sprint(p.Example))
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if fmt.Sprint(w.Code) != status {
		t.Errorf("%s %s: status %d: %s", op.Method, r.URL, w.Code, w.Body)
		return
	}
	for name, header := range want.Headers {
		if got := w.Header().Get(name); got != fmt.Sprint(header.Example) {
			t.Errorf("%s %s: %s is %s, not %v", op.Method, r.URL, name, got, header.Example)
		}
	}
	if _, ok := want.Content["application/yaml"]; ok {
		return
	}
	for mime, content := range want.Content {
		at := op.At + "/responses/" + status + "/content/" + strings.ReplaceAll(mime, "/", "~1") + "/schema"
		answer, err := jsonschema.UnmarshalJSON(w.Body)
		if got := w.Header().Get("Content-Type"); err != nil || got != mime {
			t.Errorf("%s %s: %s, %v", op.Method, r.URL, got, err)
			continue
		}
		d.check(t, at, answer)
		if content.Example == nil { // it would be long
			continue
		}
		example := plainJSON(t, content.Example)
		d.check(t, at, example)
		if wrong := sameAnswer("answer", answer, example); wrong != "" {
			text, _ := json.Marshal(answer)
			t.Errorf("%s %s: %s: %s", op.Method, r.URL, wrong, text)
		}
	}
}

// types are the schemas of the document and what they are in Go.
var types = []any{
	api.Charge{},
	api.Request{},
	api.Reserve{},
	api.Settle{},
	api.Batch{},
	api.Subject{},
	api.InspectRequest{},
	api.ResetRequest{},
	api.Block{},
	api.Override{},
	api.Changed{},
	api.Me{},
	api.AuditEntry{},
	api.Audit{},
	api.Observe{},
	api.Observed{},
	api.LeaseToken{},
	api.Leases{},
	api.Explain{},
	api.Decision{},
	api.Figures{},
	api.Reserved{},
	api.Filled{},
	api.Debited{},
	api.Refund{},
	api.Refunded{},
	api.Extended{},
	api.Acquired{},
	api.Settled{},
	api.Answers{},
	api.Lost{},
	api.Reset{},
	api.Attempt{},
	api.Status{},
	api.Cells{},
	api.Refusal{},
	api.LimitUsage{},
	api.Usage{},
	api.Traffic{},
	api.LimitTraffic{},
	api.KeyTraffic{},
	api.ExplainCharge{},
	api.Verdict{},
	api.Explanation{},
	api.Limit{},
	api.Limits{},
	api.Catalog{},
	api.CatalogLimit{},
	api.CatalogPlan{},
	api.Versions{},
	api.Version{},
	api.Difference{},
	api.ItemChange{},
	api.Overrides{},
	api.OverrideInForce{},
	api.Rollback{},
	api.SetLimit{},
	api.SetPlan{},
	api.WhatIfLog{},
	api.Keys{},
	api.Health{},
	api.Problem{},
}

// replayed are the schemas whose types have other names, in package replay.
var replayed = map[string]any{
	"Replayed": replay.Report{}, "ReplayedKey": replay.KeyReport{}, "ReplayedLog": replay.Log{},
	"ReplayedLine": replay.BadLine{}, "ReplayedReason": replay.Reason{}, "ReplayedDisorder": replay.Disorder{},
	"ReplayedBucket": replay.Bucket{},
}

// notAsked are members of these that only the command headgate replay asks for.
var notAsked = []string{"fill", "brim", "steps"}

// notGo are schemas that have no type of their own.
var notGo = []string{
	"Keep", "Cost", "RetryAfter", "ResetAfter", "Instant", "Amount", "Cancel", "WhatIf", "Suggestion", "ReplayedAll",
}
