// Package traffic knows what a server has decided in the last five minutes: for each limit the decisions of each
// second, and for which keys most was charged or refused. What it holds does not grow with the number of keys.
//
// The keys are found by the Space-Saving algorithm of Metwally, Agrawal and El Abbadi. A key that is not among the
// kept ones takes the place of the one with the least weight, and starts with that weight. Weights halve each
// minute, as Cormode and others describe it in "Forward decay": new charges weigh more, and all weights are scaled
// down together from time to time. The weight decides which keys are kept. The figures that are reported of a key are
// counted from when it was kept, so they may be too low and are never too high.
package traffic

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/server/perlimit"
	"github.com/headgate/headgate/law"
)

const (
	// Seconds is how far back the counts reach.
	Seconds = 300
	// MaxLimits is how many limits have counts of their own; the rest share those of perlimit.Others.
	MaxLimits = 200
	// Most and Fewest are how many keys of a limit are kept, for charges and for refusals each: as many as
	// Most while all limits together have not more than All, and Fewest in any case.
	Most, Fewest, All = 1024, 32, 32 << 10
)

// Outcome is the outcome of an attempt.
type Outcome uint8

// The outcomes.
const (
	Admitted Outcome = iota
	Refused
	Failed
	Outcomes = iota // how many there are
)

// Config configures Traffic. A nil Config, and every zero field, is fine.
type Config struct {
	// Defined reports whether the catalog has a limit of a name. Nil: all names are those of limits.
	Defined func(name string) bool
	// Clock is the present. Nil: time.Now.
	Clock func() time.Time
}

// Traffic counts recent decisions of a server. It is a headgate.Observer, and safe for concurrent use.
type Traffic struct {
	limits *perlimit.Values[limit]
	clock  func() time.Time
	kept   atomic.Int64 // keys of all limits
}

// limit is the traffic of one limit, or of those that share a name.
type limit struct {
	series series
	mu     sync.Mutex
	most   [2]*sketch // by Admitted and Refused; nil: there are no keys; guarded by mu
	gone   bool       // the catalog has it no more; guarded by mu
}

// New returns a Traffic that has seen nothing.
func New(c *Config) *Traffic {
	c = cmp.Or(c, &Config{})
	t := &Traffic{clock: c.Clock}
	if t.clock == nil {
		t.clock = time.Now
	}
	defined := c.Defined
	if defined == nil {
		defined = func(string) bool { return true }
	}
	t.limits = perlimit.New(MaxLimits, defined, func(string) *limit { return new(limit) })
	return t
}

// Decided implements headgate.Observer. Checks are left out: they charge nothing.
func (t *Traffic) Decided(_ context.Context, e headgate.Event) {
	if e.Verb == headgate.VerbCheck {
		return
	}
	now := t.clock().UnixNano()
	d := &e.Decision
	name, outcome := d.LimitName, Refused
	switch {
	case e.Err != nil:
		name, outcome = e.Limit, Failed
	case d.Allowed:
		outcome = Admitted
	}
	l := t.limits.Of(name)
	l.series.add(now, outcome)
	switch {
	case e.Err != nil, d.Replayed: // which was counted when it was decided
	case len(e.Charges) > 1 && len(d.Each) > 0:
		for i := range d.Each {
			if f := &d.Each[i]; f.Allowed == d.Allowed {
				t.count(t.limits.Of(f.LimitName), now, law.Cell{Limit: f.LimitName, Key: f.Key}, &e, f.Charge)
			}
		}
	default:
		t.count(l, now, law.Cell{Limit: d.LimitName, Key: d.Key}, &e, 0)
	}
}

// count counts one charge of a request for its key.
func (t *Traffic) count(l *limit, now int64, c law.Cell, e *headgate.Event, charge int) {
	which, weight := Refused, 1.0
	if e.Decision.Allowed {
		which, weight = Admitted, costOf(e, charge)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.most[which]
	switch {
	case l.gone:
		return
	case s == nil:
		s = newSketch(now, t.room)
		l.most[which] = s
	}
	s.add(now, c, weight)
}

// costOf returns what a charge has cost that was admitted.
func costOf(e *headgate.Event, charge int) float64 {
	switch {
	case e.Verb == headgate.VerbFillUp:
		return e.Accepted.Float64()
	case charge >= len(e.Charges) || e.Charges[charge].Cost.IsZero():
		return 1
	}
	return e.Charges[charge].Cost.Float64()
}

// room takes room for one more key of a sketch that has n, if there is any.
func (t *Traffic) room(n int) bool {
	switch {
	case n < Fewest:
		t.kept.Add(1)
	case n >= Most:
		return false
	case t.kept.Add(1) > All:
		t.kept.Add(-1)
		return false
	}
	return true
}

// forget forgets the limits that the catalog has no more.
func (t *Traffic) forget() {
	t.limits.Forget(func(_ string, l *limit) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.most {
			if s != nil {
				t.kept.Add(-int64(len(s.entries)))
			}
		}
		l.most, l.gone = [2]*sketch{}, true
	})
}
