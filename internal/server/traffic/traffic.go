// Package traffic counts the decisions of a server in the last five minutes: for each limit the decisions of each
// second, and the keys with the most charges and refusals. Its memory does not grow with the number of keys.
//
// The keys are found by the Space-Saving algorithm of Metwally, Agrawal and El Abbadi: when there is no room, a new key
// replaces the one with the least weight, and starts with that weight. Weights halve each minute, as Cormode and others
// describe it in "Forward decay": new charges weigh more, and all weights are scaled down together from time to time.
// The weight decides which keys are kept. The reported figures of a key are counted from when it was last added, so
// they may be too low and are never too high.
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
	// MaxLimits is how many limits have counts of their own; the others share those of perlimit.OtherLimits.
	MaxLimits = 200
	// Each limit may have MinKeys keys with charges, and as many with refusals. While all limits together have fewer
	// than MaxTotalKeys, it may have up to MaxKeys of each.
	MaxKeys, MinKeys, MaxTotalKeys = 1024, 32, 32 << 10
)

// Outcome is the outcome of an attempt.
type Outcome uint8

// The outcomes.
const (
	Admitted Outcome = iota
	Refused
	Failed
	OutcomeCount = iota // number of outcomes
)

// Config configures Traffic. It may be nil, and every field may be zero.
type Config struct {
	// Defined reports whether the catalog has a limit with a name. Nil: every name is defined.
	Defined func(name string) bool
	// Clock returns the current time. Nil: time.Now.
	Clock func() time.Time
}

// Traffic counts recent decisions of a server. It is a headgate.Observer, and safe for concurrent use.
type Traffic struct {
	limits    *perlimit.Values[limit]
	clock     func() time.Time
	totalKeys atomic.Int64 // keys of all limits
}

// limit is the traffic of one limit, or of the limits that share a name.
type limit struct {
	series    series
	mu        sync.Mutex
	sketches  [2]*sketch // for Admitted and Refused; nil: there are no keys; guarded by mu
	forgotten bool       // the catalog does not have the limit any more; guarded by mu
}

// New returns a Traffic without counts.
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
	case e.Err != nil, d.Replayed: // the keys of a replay were counted before
	case len(e.Charges) > 1 && len(d.Each) > 0:
		for i := range d.Each {
			// Of a refused request it counts only what refused it, and nothing of an alternative that was passed over.
			if f := &d.Each[i]; f.Allowed == d.Allowed && (!d.Allowed || !isPassedOver(&e, f.Charge)) {
				t.count(t.limits.Of(f.LimitName), now, law.Cell{Limit: f.LimitName, Key: f.Key}, &e, f.Charge)
			}
		}
	default:
		t.count(l, now, law.Cell{Limit: d.LimitName, Key: d.Key}, &e, 0)
	}
}

// isPassedOver reports whether a charge of an admitted request belongs to another alternative than the one taken.
func isPassedOver(e *headgate.Event, charge int) bool {
	taken := e.Decision.Alternative
	return taken != 0 && charge < len(e.Charges) && e.Charges[charge].Alternative != taken
}

// count adds one charge of a request to its key: the cost if it was admitted, or else a refusal.
func (t *Traffic) count(l *limit, now int64, c law.Cell, e *headgate.Event, charge int) {
	outcome, weight := Refused, 1.0
	if e.Decision.Allowed {
		outcome, weight = Admitted, costOf(e, charge)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sketches[outcome]
	switch {
	case l.forgotten:
		return
	case s == nil:
		at := now / 1e9
		s = &sketch{takeRoom: t.takeRoom, index: map[law.Cell]*entry{}, scaleStart: at, now: at, scale: 1}
		l.sketches[outcome] = s
	}
	s.add(now, c, weight)
}

// costOf returns the cost of an admitted charge.
func costOf(e *headgate.Event, charge int) float64 {
	switch {
	case e.Verb == headgate.VerbFillUp:
		return e.Accepted.Float64()
	case charge >= len(e.Charges) || e.Charges[charge].Cost.IsZero():
		return 1
	}
	return e.Charges[charge].Cost.Float64()
}

// takeRoom reports whether a sketch with n keys may add one, and counts it then.
func (t *Traffic) takeRoom(n int) bool {
	switch {
	case n < MinKeys:
		t.totalKeys.Add(1)
	case n >= MaxKeys:
		return false
	case t.totalKeys.Add(1) > MaxTotalKeys:
		t.totalKeys.Add(-1)
		return false
	}
	return true
}

// forget drops the counts of limits that the catalog does not have any more.
func (t *Traffic) forget() {
	t.limits.Forget(func(_ string, l *limit) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, s := range l.sketches {
			if s != nil {
				t.totalKeys.Add(-int64(len(s.entries)))
			}
		}
		l.sketches, l.forgotten = [2]*sketch{}, true
	})
}
