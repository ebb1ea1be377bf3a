package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/config"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/internal/server/metrics"
	"github.com/headgate/headgate/internal/server/rest"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
	"github.com/headgate/headgate/store/memory"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// distant hides that a store lives in this process, so that it gets the wrappers of a server.
type distant struct {
	store.Store
	store.Inspector
}

// rig is a server with metrics.
type rig struct {
	*metrics.Metrics
	limits  *catalog.Catalog
	limiter *headgate.Limiter
	handler http.Handler
}

func newRig(t testing.TB, names ...string) *rig {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	m := metrics.New(&metrics.Config{Version: "v1", Store: "memory", Load: load.New(0, 0), Log: quiet})
	below := memory.New(&memory.Config{Names: true})
	// The store is this process, and would have 250 ms for a decision, as a server has: a machine may pause for longer.
	s := front.New(distant{below, below}, &front.Config{
		Observer: m, Logger: quiet, SweepEvery: time.Hour, Guard: &front.GuardConfig{Deadline: time.Minute},
	})
	t.Cleanup(func() { s.Close() })
	limits, err := catalog.Open(t.Context(), below, &catalog.Config{Observer: m, Logger: quiet, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limits.Close)
	m.Watch(s, limits)
	r := &rig{Metrics: m, limits: limits}
	r.define(t, names...)
	r.limiter = headgate.New(s, &headgate.Config{Names: limits, Observer: m, Timeout: time.Minute})
	r.handler = rest.New(service.New(r.limiter, &config.Config{}, limits), quiet, nil)
	return r
}

// define defines limits that admit two.
func (r *rig) define(t testing.TB, names ...string) {
	t.Helper()
	var list []catalog.Definition
	for _, name := range names {
		l, err := headgate.ParseNamed(name, "fixed-window 2/30d")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, catalog.Definition{Limit: l})
	}
	if len(list) == 0 {
		return
	}
	if _, err := r.limits.Set(t.Context(), catalog.By{Author: "test", Reason: "test"}, list...); err != nil {
		t.Fatal(err)
	}
	if err := r.limits.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) take(body string) int {
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/take", strings.NewReader(body)))
	return w.Code
}

// scrape returns the text that a scrape gets, and the families in it.
func (r *rig) scrape(t testing.TB) (text string, families map[string]*dto.MetricFamily) {
	t.Helper()
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, metrics.Path, http.NoBody))
	text = w.Body.String()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v", w.Code, err)
	}
	return text, families
}

// decided returns the lines of headgate_decisions_total, as label values and number.
func decided(families map[string]*dto.MetricFamily) []string {
	var lines []string
	for _, m := range families["headgate_decisions_total"].GetMetric() {
		of := map[string]string{}
		for _, l := range m.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %v", of["limit"], of["verb"], of["outcome"], of["protocol"],
			of["way"], m.GetCounter().GetValue()))
	}
	slices.Sort(lines)
	return lines
}

// TestDecisionsAreCountedExactly while time stands still: a refusal is repeated here for a second.
func TestDecisionsAreCountedExactly(t *testing.T) { synctest.Test(t, countedExactly) }

func countedExactly(t *testing.T) {
	r := newRig(t, "login")
	for range 5 { // two are admitted, after which it is known that nothing is left
		r.take(`{"limit":"login","key":"k"}`)
	}
	r.take(`{"limit":"fixed-window 1/30d","key":"k"}`)
	r.take(`{"limit":"nobody","key":"k"}`)
	for p := range service.Protocol(service.Protocols) {
		_, err := r.limiter.Check(service.WithProtocol(t.Context(), p), headgate.Charge{
			Limit: headgate.MustNamed("login"), Key: "c",
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	_, families := r.scrape(t)
	want := []string{
		"(inline) take admitted http store 1",
		"(unknown) take invalid http none 1",
		"login check admitted auth store 1",
		"login check admitted envoy store 1",
		"login check admitted grpc store 1",
		"login check admitted http store 1",
		"login check admitted resp store 1",
		"login take admitted http store 2",
		"login take refused http local 3",
	}
	if got := decided(families); !slices.Equal(got, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := families["headgate_store_batch_ops"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 9 {
		t.Errorf("%d batches, want 9: each call that went to the store was alone", n)
	}
}

// TestClientsAddNoSeries takes from 20,000 limits and keys that differ, and from limits that do not exist.
func TestClientsAddNoSeries(t *testing.T) {
	r := newRig(t, "login")
	ask := func(i int) {
		r.take(fmt.Sprintf(`{"limit":"fixed-window %d/1h","key":"key-%d"}`, i+1, i))
		if i%20 == 0 {
			_, _ = r.limiter.Allow(t.Context(), headgate.MustNamed(fmt.Sprintf("no-limit-%d", i)), "key-x")
			r.take(fmt.Sprintf(`{"limit":"login","key":"key-%d"}`, i))
		}
	}
	for i := range tier.Pick(2000, 20_000, 20_000) {
		ask(i)
	}
	text, families := r.scrape(t)
	named := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "limit" {
					named[label.GetValue()] = true
				}
			}
		}
	}
	// Which outcomes there are depends on the time that the calls take; the limits do not.
	got, want := slices.Sorted(maps.Keys(named)), []string{"(inline)", "(unknown)", "login"}
	if !slices.Equal(got, want) || len(text) > 64<<10 || strings.Contains(text, "key-") {
		t.Errorf("limits %q, want %q, in %d bytes:\n%s", got, want, len(text), text)
	}
	t.Logf("%d bytes", len(text))
}

func TestLimitsBeyondTheMostShareAValueAndRemovedOnesGo(t *testing.T) {
	names := make([]string, metrics.MaxLimits+5)
	for i := range names {
		names[i] = fmt.Sprintf("limit-%d", i)
	}
	r := newRig(t, names...)
	for _, name := range names {
		r.take(fmt.Sprintf(`{"limit":%q,"key":"k"}`, name))
	}
	text, families := r.scrape(t)
	lines := decided(families)
	if len(lines) != metrics.MaxLimits+1 || !slices.Contains(lines, "(others) take admitted http store 5") {
		t.Errorf("%d series, want %d and one of others", len(lines), metrics.MaxLimits)
	}
	if len(text) > 1<<20 {
		t.Errorf("%d limits make %d bytes", len(names), len(text))
	}
	if _, err := r.limits.Remove(t.Context(), catalog.By{Author: "test"}, names[:len(names)-1]...); err != nil {
		t.Fatal(err)
	}
	if err := r.limits.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, families = r.scrape(t); len(decided(families)) != 1 {
		t.Errorf("after all but one limit were removed: %v", decided(families))
	}
}

// TestHistogramsHaveNativeAndClassicBuckets compares the quantiles of both with what was observed.
func TestHistogramsHaveNativeAndClassicBuckets(t *testing.T) {
	r := newRig(t)
	took := []time.Duration{
		0, 50 * time.Nanosecond, time.Microsecond, time.Millisecond, time.Millisecond, time.Second / 2,
		100 * time.Second,
	}
	sum := time.Duration(0)
	for _, d := range took {
		r.Decided(t.Context(), headgate.Event{Verb: headgate.VerbTake, Took: d})
		sum += d
	}
	q := httptest.NewRequest(http.MethodGet, metrics.Path, http.NoBody)
	q.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, q)
	dec := expfmt.NewDecoder(bytes.NewReader(w.Body.Bytes()), expfmt.NewFormat(expfmt.TypeProtoDelim))
	var h *dto.Histogram
	for h == nil {
		var f dto.MetricFamily
		if err := dec.Decode(&f); err != nil {
			t.Fatal(err)
		}
		if f.GetName() == "headgate_decision_seconds" {
			h = f.GetMetric()[0].GetHistogram()
		}
	}
	if h.GetSampleCount() != uint64(len(took)) || h.GetSampleSum() != sum.Seconds() || h.GetZeroCount() != 2 {
		t.Errorf("count %d, sum %v, zero %d", h.GetSampleCount(), h.GetSampleSum(), h.GetZeroCount())
	}
	// 1 µs lies in the bucket that ends at 2^(-159/8), 1 ms in that at 2^(-79/8), 0.5 s in that at 2^-1, and
	// 100 s in that at 2^(54/8).
	got, at, n := map[int]int64{}, 0, int64(0)
	deltas := h.GetPositiveDelta()
	for _, s := range h.GetPositiveSpan() {
		at += int(s.GetOffset())
		for range s.GetLength() {
			n += deltas[0]
			got[at], deltas = n, deltas[1:]
			at++
		}
	}
	if want := map[int]int64{-159: 1, -79: 2, -8: 1, 54: 1}; !maps.Equal(got, want) || h.GetSchema() != 3 {
		t.Errorf("schema %d, native buckets %v, want %v", h.GetSchema(), got, want)
	}
	for _, b := range h.GetBucket() {
		below := uint64(0)
		for _, d := range took {
			if d.Seconds() <= b.GetUpperBound() {
				below++
			}
		}
		if b.GetCumulativeCount() != below {
			t.Errorf("le %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), below)
		}
	}
}

// everything makes each metric appear.
func everything(t testing.TB) map[string]*dto.MetricFamily {
	r := newRig(t, "login")
	r.take(`{"limit":"login","key":"k"}`)
	r.Retried(store.Retries{Times: 2, Err: errors.New("x")})
	r.Swept(store.Sweep{Removed: 3})
	r.Away(store.ErrUnavailable)
	r.Applied(catalog.Application{})
	_, families := r.scrape(t)
	return families
}

// TestTheMetricsReference compares docs/metrics-reference.md with a scrape, of which UPDATE_REFERENCE=1 writes it.
func TestTheMetricsReference(t *testing.T) {
	const path = "../../../docs/metrics-reference.md"
	var rows []string
	for name, f := range everything(t) {
		if !strings.HasPrefix(name, "headgate_") {
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+l.GetName()+"`")
		}
		slices.Sort(labels)
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "), strings.TrimSuffix(f.GetHelp(), ".")))
	}
	slices.Sort(rows)
	text := "<!-- Generated: UPDATE_REFERENCE=1 go test ./internal/server/metrics -run Reference writes this page. -->\n\n" +
		"# Metrics reference\n\nWhat `GET /metrics` answers. [The labels](metrics.md#the-labels) have a list. Beside these are " +
		"`go_` and `process_`.\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n" + strings.Join(rows, "")
	if os.Getenv("UPDATE_REFERENCE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != text {
		t.Errorf("%s is not what is exposed (UPDATE_REFERENCE=1 writes it): %v", path, err)
	}
}

// TestRulesAndDashboardNameMetricsThatExist reads the names in deploy/.
func TestRulesAndDashboardNameMetricsThatExist(t *testing.T) {
	known := everything(t)
	for _, path := range []string{"../../../deploy/prometheus/alerts.yaml", "../../../deploy/grafana/headgate.json"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\bheadgate_[a-z_]+`).FindAllString(string(text), -1)
		if len(names) < 5 {
			t.Errorf("%s names %d metrics", path, len(names))
		}
		for _, name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if known[name] == nil && known[base].GetType() != dto.MetricType_HISTOGRAM {
				t.Errorf("%s names %s, which is not exposed", path, name)
			}
		}
	}
}

func TestErrorsAreCountedByClass(t *testing.T) {
	r := newRig(t)
	for err, want := range map[error]string{
		store.ErrBusy: "busy", fmt.Errorf("x: %w", store.ErrUnknownOutcome): "unknown_outcome",
		context.Canceled: "canceled", headgate.ErrReused: "reused_id", errors.New("x"): "other",
	} {
		r.Decided(t.Context(), headgate.Event{Verb: headgate.VerbTake, Limit: "a b", Err: err})
		_, families := r.scrape(t)
		if line := "(inline) take " + want + " http none 1"; !slices.Contains(decided(families), line) {
			t.Errorf("%v: no %q in %v", err, line, decided(families))
		}
	}
}
