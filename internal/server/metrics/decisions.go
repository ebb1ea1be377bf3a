package metrics

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/perlimit"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/store"
)

// MaxLimits is how many limits at most have series of decisions of their own.
const MaxLimits = 1000

// errorOutcomes has the label outcome for each class of errors. The first match counts.
var errorOutcomes = []struct {
	name string
	err  error
}{
	{"unknown_outcome", store.ErrUnknownOutcome},
	{"unknown_id", headgate.ErrUnknownID},
	{"reused_id", headgate.ErrReused},
	{"settled_id", headgate.ErrSettled},
	{"invalid", store.ErrInvalid},
	{"unsupported", store.ErrUnsupported},
	{"conflict", store.ErrConflict},
	{"busy", store.ErrBusy},
	{"no_space", store.ErrNoSpace},
	{"full", store.ErrFull},
	{"read_only", store.ErrReadOnly},
	{"schema_newer", store.ErrSchemaNewer},
	{"setup", store.ErrSetup},
	{"closed", store.ErrClosed},
	{"unavailable", store.ErrUnavailable},
	{"deadline", context.DeadlineExceeded},
	{"canceled", context.Canceled},
}

// outcomeOf returns the label outcome of an error, other if errorOutcomes does not have it.
func outcomeOf(err error) string {
	for i := range errorOutcomes {
		if errors.Is(err, errorOutcomes[i].err) {
			return errorOutcomes[i].name
		}
	}
	return "other"
}

// decisions counts decisions, and how long they take. It is safe for concurrent use.
type decisions struct {
	limits  *perlimit.Values[perLimit]
	total   *prometheus.CounterVec
	crossed *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

// perLimit has the counters of a limit.
type perLimit struct{ total, crossed *prometheus.CounterVec }

// register creates and registers the metrics. defined reports whether the catalog has a limit.
func (d *decisions) register(to prometheus.Registerer, defined func(name string) bool) {
	d.total = promauto.With(to).NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_decisions_total", Help: "Decisions, and attempts that failed.",
	}, []string{"limit", "verb", "outcome", "protocol", "way"})
	o := histogramOpts("headgate_decision_seconds", "How long decisions took, the store's time included.", powersOfTwo)
	o.NativeHistogramMaxBucketNumber = 0 // no maximum: from the threshold to deadlines of 2^6 s, 8 a doubling, are 240
	o.NativeHistogramZeroThreshold = 0x1p-24
	d.seconds = promauto.With(to).NewHistogramVec(o, []string{"protocol", "way"})
	d.crossed = promauto.With(to).NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_thresholds_crossed_total", Help: "Thresholds of notify that charges have crossed, as told.",
	}, []string{"limit", "percent"})
	d.limits = perlimit.New(MaxLimits, defined, func(limit string) *perLimit {
		labels := prometheus.Labels{"limit": limit}
		return &perLimit{d.total.MustCurryWith(labels), d.crossed.MustCurryWith(labels)}
	})
}

// Crossed implements headgate.CrossingObserver.
func (d *decisions) Crossed(_ context.Context, c headgate.Crossing) {
	d.limits.Of(c.Limit).crossed.WithLabelValues(strconv.Itoa(c.Percent)).Inc()
}

// powersOfTwo has the bounds of the classic buckets in seconds, which are bounds of native buckets too.
var powersOfTwo = []float64{
	0x1p-20, 0x1p-18, 0x1p-16, 0x1p-14, 0x1p-13, 0x1p-12, 0x1p-11, 0x1p-10, 0x1p-9, 0x1p-8, 0x1p-7, 0x1p-6, 0x1p-5,
	0x1p-4, 0x1p-3, 0x1p-2, 0x1p-1, 1, 4,
}

// Decided implements headgate.Observer. It leaves out decisions of the server itself.
func (d *decisions) Decided(ctx context.Context, e headgate.Event) {
	p := service.ProtocolOf(ctx)
	if p >= service.ProtocolInternal {
		return
	}
	way, name, outcome := e.Decision.Via.String(), e.Decision.LimitName, "refused"
	switch {
	case e.Err != nil:
		way, name, outcome = "none", e.Limit, outcomeOf(e.Err)
	case e.Decision.Allowed:
		outcome = "admitted"
	}
	d.limits.Of(name).total.WithLabelValues(string(e.Verb), outcome, p.String(), way).Inc()
	d.seconds.WithLabelValues(p.String(), way).Observe(e.Took.Seconds())
}
