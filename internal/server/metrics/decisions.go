package metrics

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/perlimit"
	"github.com/headgate/headgate/internal/server/service"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// MaxLimits is how many limits have series of their own.
const MaxLimits = 1000

// verbs are those of decisions; another one would count as the last.
var verbs = [...]headgate.Verb{
	headgate.VerbTake, headgate.VerbCheck, headgate.VerbFillUp, headgate.VerbDebit, headgate.VerbReserve,
	headgate.VerbExtend, headgate.VerbAcquire,
}

// ways are those of decisions, by law.Via. What failed has the way none.
var ways = [...]string{
	law.ViaStore: "store", law.ViaPrefetch: "prefetch", law.ViaLocal: "local", law.ViaFallback: "fallback",
	wayNone: "none",
}

const wayNone = law.ViaFallback + 1

// failures are the outcomes of what failed, with the errors that they stand for. The first that fits counts.
var failures = []struct {
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

// outcomes are the failures, what fits none of them, and what succeeded, admitted and refused, by each way.
const (
	maxFailures = 20 // room for other
	outcomes    = maxFailures + 2*int(wayNone)
)

// failureOf returns the place of an error in failures; one after the last is other.
func failureOf(err error) int {
	for i := range failures {
		if errors.Is(err, failures[i].err) {
			return i
		}
	}
	return len(failures)
}

func failureName(i int) string {
	if i < len(failures) {
		return failures[i].name
	}
	return "other"
}

// block counts the decisions of one limit and verb.
type block [service.Protocols][outcomes]atomic.Uint64

// limit counts the decisions of one limit. Its blocks are made when they are needed.
type limit struct {
	blocks [len(verbs)]atomic.Pointer[block]
}

func (l *limit) add(verb int, p service.Protocol, outcome int) {
	b := l.blocks[verb].Load()
	for b == nil {
		l.blocks[verb].CompareAndSwap(nil, new(block))
		b = l.blocks[verb].Load()
	}
	b[p][outcome].Add(1)
}

// decisions counts decisions. It is safe for concurrent use.
type decisions struct {
	since  time.Time
	limits *perlimit.Values[limit]
	took   [service.Protocols][len(ways)]atomic.Pointer[histogram]
}

// Decided implements headgate.Observer.
func (d *decisions) Decided(ctx context.Context, e headgate.Event) {
	p := service.ProtocolOf(ctx)
	if p >= service.ProtocolNone {
		return
	}
	verb := 0
	for verb < len(verbs)-1 && verbs[verb] != e.Verb {
		verb++
	}
	way, name := wayNone, e.Limit
	var outcome int
	if e.Err != nil {
		outcome = failureOf(e.Err)
	} else {
		way, name = min(e.Decision.Via, law.ViaFallback), e.Decision.LimitName
		if outcome = maxFailures + 2*int(way); e.Decision.Allowed {
			outcome++
		}
	}
	d.limits.Of(name).add(verb, p, outcome)
	h := d.took[p][way].Load()
	for h == nil {
		d.took[p][way].CompareAndSwap(nil, new(histogram))
		h = d.took[p][way].Load()
	}
	h.observe(e.Took)
}

var (
	decisionsDesc = prometheus.NewDesc("headgate_decisions_total",
		"Decisions, and attempts that failed.", []string{"limit", "verb", "outcome", "protocol", "way"}, nil)
	decisionDesc = prometheus.NewDesc("headgate_decision_seconds",
		"How long decisions took, the store's time included.", []string{"protocol", "way"}, nil)
)

// Describe implements prometheus.Collector.
func (d *decisions) Describe(to chan<- *prometheus.Desc) { to <- decisionsDesc; to <- decisionDesc }

// Collect implements prometheus.Collector.
func (d *decisions) Collect(to chan<- prometheus.Metric) {
	d.limits.Each(func(name string, l *limit) { l.collect(to, name) })
	for p := range d.took {
		for way := range d.took[p] {
			if h := d.took[p][way].Load(); h != nil {
				to <- &timed{h, decisionDesc, []*dto.LabelPair{
					{Name: new("protocol"), Value: new(service.Protocol(p).String())},
					{Name: new("way"), Value: &ways[way]},
				}, d.since}
			}
		}
	}
}

// collect sends the counts that are not 0.
func (l *limit) collect(to chan<- prometheus.Metric, name string) {
	for verb := range l.blocks {
		b := l.blocks[verb].Load()
		if b == nil {
			continue
		}
		for p := range b {
			for i := range b[p] {
				n := b[p][i].Load()
				if n == 0 {
					continue
				}
				outcome, way := failureName(i), ways[wayNone]
				if i >= maxFailures {
					way = ways[(i-maxFailures)/2]
					outcome = [2]string{"refused", "admitted"}[(i-maxFailures)%2]
				}
				to <- prometheus.MustNewConstMetric(decisionsDesc, prometheus.CounterValue, float64(n), name,
					string(verbs[verb]), outcome, service.Protocol(p).String(), way)
			}
		}
	}
}
