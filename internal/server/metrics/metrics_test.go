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

// remoteStore hides that a store is in this process, so that front.New wraps it like the store of a server.
type remoteStore struct {
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

// newRig returns a rig with limits of the names, which admit two.
func newRig(t testing.TB, names ...string) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	m := metrics.New(&metrics.Config{Version: "v1", Store: "memory", Load: load.New(0, 0), Log: log})
	memoryStore := memory.New(&memory.Config{Names: true})
	// The default deadline of a decision, 1.5 s, is too short for a machine that pauses for longer.
	s := front.New(remoteStore{memoryStore, memoryStore}, &front.Config{
		Observer: m, Logger: log, SweepEvery: time.Hour, Guard: &front.GuardConfig{Deadline: time.Minute},
	})
	t.Cleanup(func() { s.Close() })
	limits, err := catalog.Open(t.Context(), memoryStore, &catalog.Config{Observer: m, Logger: log, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limits.Close)
	m.Watch(s, limits)
	r := &rig{Metrics: m, limits: limits}
	r.define(t, names...)
	r.limiter = headgate.New(s, &headgate.Config{Names: limits, Observer: m, Timeout: time.Minute})
	r.handler = rest.New(service.New(r.limiter, &config.Config{}, limits), log, nil)
	return r
}

// define defines limits that admit two, and reads them.
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

// scrape returns the text that a scrape gets, and the metric families in the text.
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

// decisionLines returns the series of headgate_decisions_total, each as its label values and its count.
func decisionLines(families map[string]*dto.MetricFamily) []string {
	var lines []string
	for _, m := range families["headgate_decisions_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %v", labels["limit"], labels["verb"], labels["outcome"], labels["protocol"],
			labels["way"], m.GetCounter().GetValue()))
	}
	slices.Sort(lines)
	return lines
}

// TestDecisionsAreCountedExactly checks the series while the clock stands still: package deny repeats a refusal.
func TestDecisionsAreCountedExactly(t *testing.T) { synctest.Test(t, testDecisionsAreCountedExactly) }

func testDecisionsAreCountedExactly(t *testing.T) {
	r := newRig(t, "login")
	for range 5 { // 2 are admitted; then package deny knows that nothing remains, and refuses 3 without the store
		r.take(`{"limit":"login","key":"k"}`)
	}
	r.take(`{"limit":"fixed-window 1/30d","key":"k"}`)
	r.take(`{"limit":"nobody","key":"k"}`)
	for p := range service.Protocol(service.ProtocolCount) {
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
	if got := decisionLines(families); !slices.Equal(got, want) {
		t.Errorf("got the series\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := families["headgate_store_batch_ops"].GetMetric()[0].GetHistogram().GetSampleCount(); n != 9 {
		t.Errorf("%d batches, want 9: each call that went to the store was alone", n)
	}
}

// TestClientsAddNoSeries checks that thousands of different inline limits and keys, and unknown limits, share series.
func TestClientsAddNoSeries(t *testing.T) {
	r := newRig(t, "login")
	send := func(i int) {
		r.take(fmt.Sprintf(`{"limit":"fixed-window %d/1h","key":"key-%d"}`, i+1, i))
		if i%20 == 0 {
			_, _ = r.limiter.Allow(t.Context(), headgate.MustNamed(fmt.Sprintf("no-limit-%d", i)), "key-x")
			r.take(fmt.Sprintf(`{"limit":"login","key":"key-%d"}`, i))
		}
	}
	for i := range tier.Pick(2000, 20_000, 20_000) {
		send(i)
	}
	text, families := r.scrape(t)
	limits := map[string]bool{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "limit" {
					limits[label.GetValue()] = true
				}
			}
		}
	}
	// The outcomes depend on the time that the calls take, so only the limits are compared.
	got, want := slices.Sorted(maps.Keys(limits)), []string{"(inline)", "(unknown)", "login"}
	if !slices.Equal(got, want) || len(text) > 64<<10 || strings.Contains(text, "key-") {
		t.Errorf("limits %q, want %q, in %d bytes:\n%s", got, want, len(text), text)
	}
	t.Logf("%d bytes", len(text))
}

// TestMaxLimits checks that limits beyond MaxLimits share a series, and that the series of removed limits disappear.
func TestMaxLimits(t *testing.T) {
	names := make([]string, metrics.MaxLimits+5)
	for i := range names {
		names[i] = fmt.Sprintf("limit-%d", i)
	}
	r := newRig(t, names...)
	for _, name := range names {
		r.take(fmt.Sprintf(`{"limit":%q,"key":"k"}`, name))
		r.Crossed(t.Context(), headgate.Crossing{Limit: name, Key: "k", Percent: 80})
	}
	text, families := r.scrape(t)
	const crossed = "headgate_thresholds_crossed_total"
	if n := len(families[crossed].GetMetric()); n != metrics.MaxLimits+1 {
		t.Errorf("%d series of %s, want %d and one for the others", n, crossed, metrics.MaxLimits)
	}
	lines := decisionLines(families)
	if len(lines) != metrics.MaxLimits+1 || !slices.Contains(lines, "(others) take admitted http store 5") {
		t.Errorf("%d series, want %d and one for the others", len(lines), metrics.MaxLimits)
	}
	if len(text) > 1<<20 {
		t.Errorf("%d limits make %d bytes, want at most 1 MiB", len(names), len(text))
	}
	if _, err := r.limits.Remove(t.Context(), catalog.By{Author: "test"}, names[:len(names)-1]...); err != nil {
		t.Fatal(err)
	}
	if err := r.limits.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, families = r.scrape(t); len(decisionLines(families)) != 1 || len(families[crossed].GetMetric()) != 1 {
		t.Errorf("after all but one limit were removed: %v, want one series", decisionLines(families))
	}
}

// TestHistogramsHaveNativeAndClassicBuckets compares the counts of both with the observed durations.
func TestHistogramsHaveNativeAndClassicBuckets(t *testing.T) {
	r := newRig(t)
	durations := []time.Duration{
		0, 50 * time.Nanosecond, time.Microsecond, time.Millisecond, time.Millisecond, time.Second / 2,
		100 * time.Second,
	}
	sum := time.Duration(0)
	for _, d := range durations {
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
	if h.GetSampleCount() != uint64(len(durations)) || h.GetSampleSum() != sum.Seconds() || h.GetZeroCount() != 2 {
		t.Errorf("count %d, sum %v, zero %d, want %d, %v, 2", h.GetSampleCount(), h.GetSampleSum(), h.GetZeroCount(),
			len(durations), sum.Seconds())
	}
	// 1 µs lies in the bucket that ends at 2^(-159/8), 1 ms in that at 2^(-79/8), 0.5 s in that at 2^-1, and
	// 100 s in that at 2^(54/8).
	got, index, count := map[int]int64{}, 0, int64(0)
	deltas := h.GetPositiveDelta()
	for _, s := range h.GetPositiveSpan() {
		index += int(s.GetOffset())
		for range s.GetLength() {
			count += deltas[0]
			got[index], deltas = count, deltas[1:]
			index++
		}
	}
	if want := map[int]int64{-159: 1, -79: 2, -8: 1, 54: 1}; !maps.Equal(got, want) || h.GetSchema() != 3 {
		t.Errorf("schema %d, native buckets %v, want %v", h.GetSchema(), got, want)
	}
	for _, b := range h.GetBucket() {
		want := uint64(0)
		for _, d := range durations {
			if d.Seconds() <= b.GetUpperBound() {
				want++
			}
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("le %v: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
		}
	}
}

// scrapeAll returns the metric families after events, so that each family has a series.
func scrapeAll(t testing.TB) map[string]*dto.MetricFamily {
	r := newRig(t, "login")
	r.take(`{"limit":"login","key":"k"}`)
	r.Retried(store.Retries{Times: 2, Err: errors.New("x")})
	r.Swept(store.Sweep{Removed: 3})
	r.Away(store.ErrUnavailable)
	r.Applied(catalog.Application{})
	r.Crossed(t.Context(), headgate.Crossing{Limit: "login", Key: "k", Percent: 80})
	r.NotDelivered()
	_, families := r.scrape(t)
	return families
}

// TestTheMetricsReference compares docs/metrics-reference.md with a scrape. UPDATE_REFERENCE=1 writes the page.
func TestTheMetricsReference(t *testing.T) {
	const path = "../../../docs/metrics-reference.md"
	var rows []string
	for name, f := range scrapeAll(t) {
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

// TestRulesAndDashboardNameMetricsThatExist checks the names of metrics in two files of deploy/.
func TestRulesAndDashboardNameMetricsThatExist(t *testing.T) {
	families := scrapeAll(t)
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
			if families[name] == nil && families[base].GetType() != dto.MetricType_HISTOGRAM {
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
		if line := "(inline) take " + want + " http none 1"; !slices.Contains(decisionLines(families), line) {
			t.Errorf("%v: got %v, want %q in it", err, decisionLines(families), line)
		}
	}
}
