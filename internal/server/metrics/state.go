package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/server/perlimit"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/front"
)

// state collects what each scrape reads.
type state struct{ of *Metrics }

// figure is a metric without labels.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string) figure {
	return figure{prometheus.NewDesc(name, help, nil, nil), prometheus.GaugeValue}
}

func counter(name, help string) figure {
	return figure{prometheus.NewDesc(name, help, nil, nil), prometheus.CounterValue}
}

var (
	waiting     = gauge("headgate_store_waiting_calls", "Calls that wait for a batch that has not left.")
	isAway      = gauge("headgate_store_away", "1 while the circuit breaker is open, else 0.")
	fallbackOps = counter("headgate_store_fallback_ops_total", "Charges that were answered without the store.")
	share       = gauge("headgate_store_share",
		"The part of limits with away share by which this server decides; 0: none.")
	sweptRows  = counter("headgate_swept_rows_total", "Rows that sweeps have removed.")
	lastSweep  = gauge("headgate_last_sweep_timestamp_seconds", "When the last sweep ended; 0: none has.")
	version    = gauge("headgate_catalog_version", "The version of the catalog in force; 0: none was read.")
	limits     = gauge("headgate_catalog_limits", "Limits of the catalog.")
	clockAhead = gauge("headgate_store_clock_ahead_seconds",
		"How far the store's clock is ahead of this machine's, as of the last look at the catalog.")
	inFlight     = gauge("headgate_requests_in_flight", "Requests that are being decided.")
	heldBytes    = gauge("headgate_requests_held_bytes", "Bytes that requests under way hold beyond their free share.")
	stateFigures = []figure{
		waiting, isAway, fallbackOps, share, sweptRows, lastSweep, version, limits, clockAhead, inFlight, heldBytes,
	}
)

// limitKeys has one label for all limits that the catalog does not have: callers may invent notations.
var limitKeys = prometheus.NewDesc("headgate_limit_keys",
	"Keys of a limit when this server counted them last, every five minutes or so after a sweep; (inline): of all "+
		"limits that the catalog does not have.",
	[]string{"limit"}, nil)

// keys sends how many keys limits have, if that was counted.
func (s *state) keys(f *front.Store, to chan<- prometheus.Metric) {
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
	of := map[string]float64{perlimit.Inline: 0}
	for _, c := range counts {
		switch {
		case c.Limit == "": // all of them
		case s.of.defined(c.Limit):
			of[c.Limit] = float64(c.Keys)
		default:
			of[perlimit.Inline] += float64(c.Keys)
		}
	}
	for limit, n := range of {
		to <- prometheus.MustNewConstMetric(limitKeys, prometheus.GaugeValue, n, limit)
	}
}

// Describe implements prometheus.Collector.
func (s *state) Describe(to chan<- *prometheus.Desc) {
	to <- limitKeys
	for _, f := range stateFigures {
		to <- f.desc
	}
}

// Collect implements prometheus.Collector. It leaves out what is unknown.
func (s *state) Collect(to chan<- prometheus.Metric) {
	send := func(f figure, v float64) { to <- prometheus.MustNewConstMetric(f.desc, f.kind, v) }
	if f, ok := s.of.front(); ok {
		st := f.Stats()
		send(waiting, float64(st.Waiting))
		away := 0.0
		if st.Guard.Away {
			away = 1
		}
		send(isAway, away)
		send(fallbackOps, float64(st.Guard.Degraded))
		send(share, st.Guard.Share)
		send(sweptRows, float64(st.Swept))
		send(lastSweep, seconds(st.LastSweep))
		s.keys(f, to)
	}
	if c := s.of.catalog.Load(); c != nil {
		number, at := c.Version()
		send(version, float64(number))
		send(limits, float64(len(c.List())))
		if !at.IsZero() {
			send(clockAhead, time.Until(c.Now()).Seconds())
		}
	}
	if s.of.load != nil {
		requests, bytes := s.of.load.InFlight()
		send(inFlight, float64(requests))
		send(heldBytes, float64(bytes))
	}
}

// seconds returns a time in Unix seconds; 0 for the zero time.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}
