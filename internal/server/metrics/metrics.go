// Package metrics exports the metrics of a server to Prometheus; docs/metrics.md lists them.
//
// No label has a key. The label limit has names of limits of the catalog, those of decisions at most [MaxLimits];
// limits that requests give by notation share one value. So the number of series does not depend on what clients send.
package metrics

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/internal/server/load"
	"github.com/headgate/headgate/store/front"
)

// Path is the path of the metrics.
const Path = "/metrics"

// Config describes a server. It may be nil, and every field may be zero.
type Config struct {
	Version string
	Store   string // the kind of the store
	// Load counts the requests in flight. Nil: these metrics are left out.
	Load *load.Load
	Log  *slog.Logger // gets the errors of scrapes; nil: slog.Default()
}

// Metrics has the metrics of one server. It observes the limiter, the store, the drivers and the catalog: it is a
// headgate.CrossingObserver, a store.Observer, a guard.Observer and a catalog.Observer. It is safe for concurrent use.
type Metrics struct {
	decisions
	events
	registry *prometheus.Registry
	log      *slog.Logger
	load     *load.Load
	front    *front.Store // nil before Watch
	catalog  atomic.Pointer[catalog.Catalog]
	version  atomic.Int64 // version of the catalog at which removed limits were last forgotten
}

// New returns metrics with all counts 0.
func New(c *Config) *Metrics {
	c = cmp.Or(c, &Config{})
	m := &Metrics{registry: prometheus.NewRegistry(), log: cmp.Or(c.Log, slog.Default()), load: c.Load}
	promauto.With(m.registry).NewGauge(prometheus.GaugeOpts{
		Name: "headgate_build_info", Help: "1; the labels say which program runs.",
		ConstLabels: prometheus.Labels{"version": c.Version, "go_version": runtime.Version(), "store": c.Store},
	}).Set(1)
	m.registry.MustRegister(&stateCollector{m}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.decisions.register(m.registry, m.defined)
	m.events.register(m.registry)
	return m
}

// Watch sets the store and the catalog of the server, which may be nil. It must be called before Handler serves.
func (m *Metrics) Watch(f *front.Store, c *catalog.Catalog) {
	m.front = f
	m.catalog.Store(c)
}

// defined reports whether the catalog has a limit.
func (m *Metrics) defined(name string) bool {
	c := m.catalog.Load()
	if c == nil || headgate.ValidName(name) != nil {
		return false
	}
	_, ok := c.Lookup(name)
	return ok
}

// Refreshed implements catalog.Observer. With a new version it removes the series of limits that the catalog has lost.
func (m *Metrics) Refreshed(l catalog.Refresh) {
	m.looks.WithLabelValues(resultOf(l.Err)).Inc()
	if l.Err == nil {
		m.lastRead.SetToCurrentTime()
	}
	if m.version.Swap(l.Version) != l.Version && m.catalog.Load() != nil {
		m.limits.Forget(func(limit string, _ *perLimit) {
			m.total.DeletePartialMatch(prometheus.Labels{"limit": limit})
			m.crossed.DeletePartialMatch(prometheus.Labels{"limit": limit})
		})
	}
}

// Handler returns a handler for scrapes, in the text format or in protocol buffers, which have native histograms.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(m.log.Handler(), slog.LevelWarn), MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	})
}
