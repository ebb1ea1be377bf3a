package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/server/perlimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// stateCollector collects the metrics whose values are read at each scrape.
type stateCollector struct{ metrics *Metrics }

// limitKeysDesc has one label for all limits that the catalog does not have, since callers may invent notations.
var limitKeysDesc = prometheus.NewDesc("headgate_limit_keys",
	"Keys of a limit when this server counted them last, every five minutes or so after a sweep; (inline): of all "+
		"limits that the catalog does not have.",
	[]string{"limit"}, nil)

// collectKeys sends how many keys limits have, if the store has counted them.
func (s *stateCollector) collectKeys(f *front.Store, to chan<- prometheus.Metric) {
	i, ok := store.As[store.Inspector](f)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	counts, err := i.KeyCounts(ctx)
	if err != nil {
		return
	}
	keys := map[string]float64{perlimit.InlineLimits: 0}
	for _, c := range counts {
		switch {
		case c.Limit == "": // the sum of all limits
		case s.metrics.defined(c.Limit):
			keys[c.Limit] = float64(c.Keys)
		default:
			keys[perlimit.InlineLimits] += float64(c.Keys)
		}
	}
	for limit, n := range keys {
		to <- prometheus.MustNewConstMetric(limitKeysDesc, prometheus.GaugeValue, n, limit)
	}
}

// Describe implements prometheus.Collector. It describes nothing, since the metrics differ from scrape to scrape.
func (s *stateCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. It leaves out metrics that are unknown.
func (s *stateCollector) Collect(to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name string, v float64, help string) {
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, v)
	}
	gauge := func(name string, v float64, help string) { send(prometheus.GaugeValue, name, v, help) }
	counter := func(name string, v float64, help string) { send(prometheus.CounterValue, name, v, help) }
	if f := s.metrics.front; f != nil {
		st := f.Stats()
		away, lastSweep := 0.0, 0.0
		if st.Guard.Away {
			away = 1
		}
		if !st.LastSweep.IsZero() {
			lastSweep = float64(st.LastSweep.UnixMicro()) / 1e6
		}
		gauge("headgate_store_waiting_calls", float64(st.Waiting), "Calls that wait for a batch that has not left.")
		gauge("headgate_store_away", away, "1 while the circuit breaker is open, else 0.")
		counter("headgate_store_fallback_ops_total", float64(st.Guard.Degraded),
			"Charges that were answered without the store.")
		gauge("headgate_store_share", st.Guard.Share,
			"The part of limits with away share by which this server decides; 0: none.")
		counter("headgate_swept_rows_total", float64(st.Swept), "Rows that sweeps have removed.")
		gauge("headgate_last_sweep_timestamp_seconds", lastSweep, "When the last sweep ended; 0: none has.")
		s.collectKeys(f, to)
	}
	if c := s.metrics.catalog.Load(); c != nil {
		number, at := c.Version()
		gauge("headgate_catalog_version", float64(number), "The version of the catalog in force; 0: none was read.")
		gauge("headgate_catalog_limits", float64(len(c.List())), "Limits of the catalog.")
		if !at.IsZero() {
			gauge("headgate_store_clock_ahead_seconds", time.Until(c.Now()).Seconds(),
				"How far the store's clock is ahead of this machine's, as of the last look at the catalog.")
		}
	}
	if s.metrics.load != nil {
		requests, bytes := s.metrics.load.InFlight()
		gauge("headgate_requests_in_flight", float64(requests), "Requests that are being decided.")
		gauge("headgate_requests_held_bytes", float64(bytes),
			"Bytes that requests under way hold beyond their free share.")
	}
}
