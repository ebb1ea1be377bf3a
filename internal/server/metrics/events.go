package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/headgate/headgate/catalog"
	"github.com/headgate/headgate/store"
)

// events has the metrics of batches, repeated transactions, sweeps, the catalog and the circuit breaker.
type events struct {
	batchSeconds           *prometheus.HistogramVec
	batchOps, batchCallers prometheus.Histogram
	retries                *prometheus.CounterVec
	sweeps                 *prometheus.CounterVec
	sweepSeconds           prometheus.Histogram
	lastCompleteSweep      prometheus.Gauge
	openings, notDelivered prometheus.Counter
	looks, applied         *prometheus.CounterVec
	lastRead               prometheus.Gauge
}

// classicSeconds has the upper bounds of classic buckets, in seconds.
var classicSeconds = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

// histogramOpts returns the options of a histogram that has native buckets beside the classic ones.
func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160,
	}
}

func (e *events) register(to prometheus.Registerer) {
	auto := promauto.With(to)
	counter := func(name, help string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"result"})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	}
	sizes := prometheus.ExponentialBuckets(1, 2, 10)
	e.batchSeconds = auto.NewHistogramVec(histogramOpts("headgate_store_batch_seconds",
		"How long the store took to answer a batch.", classicSeconds), []string{"result"})
	e.batchOps = auto.NewHistogram(histogramOpts("headgate_store_batch_ops", "Charges in a batch.", sizes))
	e.batchCallers = auto.NewHistogram(
		histogramOpts("headgate_store_batch_callers", "Calls that share a batch.", sizes))
	e.retries = counter("headgate_store_retries_total", "Repetitions of transactions, by what became of the last one.")
	e.sweeps = counter("headgate_sweeps_total", "Sweeps of the background.")
	e.sweepSeconds = auto.NewHistogram(
		histogramOpts("headgate_sweep_seconds", "How long a sweep took.", classicSeconds))
	e.lastCompleteSweep = gauge("headgate_last_complete_sweep_timestamp_seconds",
		"When a sweep last removed less than it may, so that no dead rows were known to be left; 0: never.")
	e.openings = auto.NewCounter(prometheus.CounterOpts{
		Name: "headgate_store_away_total", Help: "How often the circuit breaker has opened.",
	})
	e.notDelivered = auto.NewCounter(prometheus.CounterOpts{
		Name: "headgate_notifications_dropped_total", Help: "Events that notify_url did not get.",
	})
	e.looks = counter("headgate_catalog_looks_total", "Looks at the catalog of the store.")
	e.lastRead = gauge("headgate_catalog_read_timestamp_seconds",
		"When the catalog was last looked at without an error; 0: never.")
	e.applied = counter("headgate_config_applied_total",
		"Attempts to apply the config file to the catalog; older: a newer file is in force.")
}

// resultOf returns the label result of an error: its outcome, or ok.
func resultOf(err error) string {
	if err == nil {
		return "ok"
	}
	return outcomeOf(err)
}

// Batched implements store.Observer.
func (e *events) Batched(b store.Batch) {
	e.batchSeconds.WithLabelValues(resultOf(b.Err)).Observe(b.Took.Seconds())
	e.batchOps.Observe(float64(b.Ops))
	e.batchCallers.Observe(float64(b.Callers))
}

// Retried implements store.Observer.
func (e *events) Retried(r store.Retries) {
	e.retries.WithLabelValues(resultOf(r.Err)).Add(float64(r.Times))
}

// Swept implements store.Observer.
func (e *events) Swept(s store.Sweep) {
	e.sweeps.WithLabelValues(resultOf(s.Err)).Inc()
	e.sweepSeconds.Observe(s.Took.Seconds())
	if s.Err == nil && !s.Full {
		e.lastCompleteSweep.SetToCurrentTime()
	}
}

// Away implements guard.Observer. err is nil when the store is back.
func (e *events) Away(err error) {
	if err != nil {
		e.openings.Inc()
	}
}

// NotDelivered counts an event that a webhook did not deliver.
func (e *events) NotDelivered() { e.notDelivered.Inc() }

// Applied implements catalog.Observer.
func (e *events) Applied(a catalog.Application) {
	result := resultOf(a.Err)
	if a.Err == nil && a.Standing == catalog.FileOlder {
		result = "older"
	}
	e.applied.WithLabelValues(result).Inc()
}
