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

// description is the OpenAPI document.
type description struct {
	Info     struct{ Config string }
	Paths    []operation // in the order of the document
	doc      map[string]any
	compiler *jsonschema.Compiler // of the schemas of doc
}

// operation is a method of a path of the document.
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
		Request struct{ Query map[string]any } `yaml:"x-headgate-ask"`
		Headers map[string]struct{ Example any }
		Content map[string]media
	}
}

type media struct{ Example any }

// readDescription reads the document that a server sends.
func readDescription(t *testing.T, h http.Handler) *description {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	var doc struct {
		Info struct {
			Config string `yaml:"x-headgate-config"`
		}
		Paths yaml.Node
	}
	d := &description{compiler: jsonschema.NewCompiler()}
	if err := yaml.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(w.Body.Bytes(), &d.doc); err != nil {
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
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	if err := d.compiler.AddResource("openapi.json", plainJSON(t, d.doc)); err != nil {
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
	schema, err := d.compiler.Compile("openapi.json" + at)
	if err != nil {
		t.Fatalf("%s: %v", at, err)
	}
	if err := schema.Validate(value); err != nil {
		t.Errorf("%s: %v", at, err)
	}
}

// query returns a query with values of parameters. If values is nil, it has the examples of the parameters.
func (op *operation) query(values map[string]any) string {
	if values == nil {
		values = map[string]any{}
		for _, p := range op.Parameters {
			if p.In == "query" && p.Example != nil {
				values[p.Name] = p.Example
			}
		}
	}
	var parts []string
	for _, p := range op.Parameters { // in the order of the document
		value, ok := values[p.Name]
		if !ok || p.In != "query" {
			continue
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		for _, v := range list {
			parts = append(parts, url.QueryEscape(p.Name)+"="+url.QueryEscape(fmt.Sprint(v)))
		}
	}
	return strings.Join(parts, "&")
}

// compareAnswer returns where an answer differs from its example, or "".
func compareAnswer(name string, got, want any) string {
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
			if difference := compareAnswer(name+"."+member, got[member], want[member]); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		list, _ := got.([]any)
		if len(list) != len(want) {
			return fmt.Sprintf("%s has %d items, not %d", name, len(list), len(want))
		}
		for i := range want {
			if difference := compareAnswer(fmt.Sprintf("%s[%d]", name, i), list[i], want[i]); difference != "" {
				return difference
			}
		}
		return ""
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("%s is %v, not %v", name, got, want)
	}
	return ""
}

// TestExamplesOfTheDescription sends the requests of the document to one server, in their order, and compares the
// answers of the statuses 200, 204 and 429 with those of the document.
func TestExamplesOfTheDescription(t *testing.T) {
	t.Parallel()
	h, _ := newHandler(t, "")
	d := readDescription(t, h)
	c, err := config.Parse("headgate.yaml", []byte(d.Info.Config))
	if err != nil {
		t.Fatal(err)
	}
	h = serveCatalog(t, c)
	for i := range d.Paths {
		op := &d.Paths[i]
		for _, status := range []string{"200", "204", "429"} {
			if _, ok := op.Responses[status]; ok {
				d.compareExample(t, h, op, status)
			}
		}
	}
}

// serveCatalog serves a catalog with the limits of a file, and what-if, over a store whose clock stands still.
func serveCatalog(t *testing.T, c *config.Config) http.Handler {
	t.Helper()
	const now = 1795600000_000000
	s := memory.New(&memory.Config{Names: true, Clock: func() int64 { return now }})
	log := slog.New(slog.DiscardHandler)
	limits, err := catalog.Read(t.Context(), s, &catalog.Config{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := limits.Apply(t.Context(), catalog.By{}, c.CatalogFile(), catalog.ApplyOnce); err != nil {
		t.Fatal(err)
	}
	// The traffic of a second is served when the second is over.
	var secondOver atomic.Bool
	counter := traffic.New(&traffic.Config{Clock: func() time.Time {
		if secondOver.Load() {
			return time.UnixMicro(now).Add(time.Second)
		}
		return time.UnixMicro(now)
	}})
	l := headgate.New(s, &headgate.Config{Names: limits, Observer: service.Observers{counter}})
	svc := service.New(l, c, limits)
	svc.UseTraffic(counter)
	logs := whatif.New(&whatif.Config{Names: limits, Limiter: l, Now: func() time.Time { return time.UnixMicro(now) }})
	t.Cleanup(logs.Close)
	h := rest.New(svc, log, &rest.Config{OtherRoutes: logs.Routes()})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secondOver.Store(r.URL.Path == "/v1/traffic")
		h.ServeHTTP(w, r)
	})
}

// compareExample sends the request of an operation, and compares the answer with the example of a status.
func (d *description) compareExample(t *testing.T, h http.Handler, op *operation, status string) {
	t.Helper()
	var body []byte
	if content, ok := op.RequestBody.Content["application/json"]; ok {
		d.check(t, op.At+"/requestBody/content/application~1json/schema", plainJSON(t, content.Example))
		body, _ = json.Marshal(content.Example)
	}
	if content, ok := op.RequestBody.Content["text/plain"]; ok {
		body = []byte(content.Example.(string))
	}
	want := op.Responses[status]
	r := httptest.NewRequest(op.Method, op.Path+"?"+op.query(want.Request.Query), bytes.NewReader(body))
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
		if content.Example == nil { // the example would be too long
			continue
		}
		example := plainJSON(t, content.Example)
		d.check(t, at, example)
		if difference := compareAnswer("answer", answer, example); difference != "" {
			text, _ := json.Marshal(answer)
			t.Errorf("%s %s: %s: %s", op.Method, r.URL, difference, text)
		}
	}
}

// goTypes are the types of package api that the document describes in a schema with the same name.
var goTypes = []any{
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

// replayTypes are the schemas of types of package replay, which have other names.
var replayTypes = map[string]any{
	"Replayed": replay.Report{}, "ReplayedKey": replay.KeyReport{}, "ReplayedLog": replay.Log{},
	"ReplayedLine": replay.BadLine{}, "ReplayedReason": replay.Reason{}, "ReplayedDisorder": replay.Disorder{},
	"ReplayedBucket": replay.Bucket{},
}

// commandFields are members of replay.Report that only the command headgate replay sets.
var commandFields = []string{"fill", "brim", "steps"}

// schemasOnly are schemas without a type in Go.
var schemasOnly = []string{
	"Keep", "Cost", "Count", "Model", "UsedTokens",
	"RetryAfter", "ResetAfter", "Instant", "Amount", "Cancel", "WhatIf", "Suggestion", "ReplayedAll",
}
