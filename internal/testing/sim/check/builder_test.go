package check_test

import (
	"slices"

	"github.com/headgate/headgate/internal/testing/history"
)

// base is a midnight in UTC, in microseconds.
const base = 1_700_006_400_000_000

const (
	second = int64(1_000_000)
	hour   = 3600 * second
	day    = 24 * hour
)

// builder builds a history. Times are microseconds since its start, or since base if they are of the store's clock.
type builder struct {
	h       history.History
	calls   map[int]*history.Call   // by id
	returns map[int]*history.Return // by the id of the call
	lastID  int
}

func newBuilder(limits ...history.Limit) *builder {
	b := &builder{calls: map[int]*history.Call{}, returns: map[int]*history.Return{}}
	for i := range limits {
		l := limits[i]
		if l.Name == "" {
			l.Name = "l"
		}
		if l.Version == 0 {
			l.Version = 1
		}
		b.h.Events = append(b.h.Events, history.Event{Limit: &l})
	}
	return b
}

// option changes a call or its return.
type option func(c *history.Call, r *history.Return)

// addCall adds a call with one charge and its return, which is admitted unless an option says otherwise. It returns the
// id of the call.
func (b *builder) addCall(at int64, verb, cost string, options ...option) int {
	b.lastID++
	charge := history.Charge{Limit: "l", Version: 1, Key: "k", Cost: cost}
	c := &history.Call{ID: b.lastID, Verb: verb, Charges: []history.Charge{charge}}
	r := &history.Return{ID: b.lastID, Outcome: history.Admitted, At: base + at}
	for _, o := range options {
		o(c, r)
	}
	b.calls[c.ID], b.returns[c.ID] = c, r
	b.addEvent(history.Event{T: at * 1000, Node: "a", Call: c})
	b.addEvent(history.Event{T: at*1000 + 100, Node: "a", Return: r})
	return c.ID
}

func (b *builder) addEvent(e history.Event) { b.h.Events = append(b.h.Events, e) }

func (b *builder) take(at int64, cost string, options ...option) int {
	return b.addCall(at, history.Take, cost, options...)
}

func (b *builder) addFault(at int64, f history.Fault) *history.Fault {
	b.addEvent(history.Event{T: at * 1000, Fault: &f})
	return &f
}

func (b *builder) addState(at int64, used string, options ...func(*history.State)) *history.State {
	s := &history.State{Limit: "l", Version: 1, Key: "k", Used: used, At: base + at}
	for _, o := range options {
		o(s)
	}
	b.addEvent(history.Event{T: at * 1000, State: s})
	return s
}

// addFollowUp adds a call without charges about an earlier call, such as a settlement.
func (b *builder) addFollowUp(at int64, verb string, earlierID int, options ...option) int {
	return b.addCall(at, verb, "", append([]option{func(c *history.Call, r *history.Return) {
		c.Charges, c.Of, r.Outcome = nil, earlierID, history.Done
	}}, options...)...)
}

// postpone moves a call and its return so many microseconds later, by true time and by the store's clock.
func (b *builder) postpone(id int, by int64) {
	b.returns[id].At += by
	for i := range b.h.Events {
		e := &b.h.Events[i]
		if e.Call == b.calls[id] && e.Call != nil || e.Return == b.returns[id] && e.Return != nil {
			e.T += by * 1000
		}
	}
	slices.SortStableFunc(b.h.Events, func(x, y history.Event) int { return int(x.T - y.T) })
}

// returnAt makes a call return at another true time.
func (b *builder) returnAt(id int, at int64) {
	for i := range b.h.Events {
		if e := &b.h.Events[i]; e.Return == b.returns[id] && e.Return != nil {
			e.T = at * 1000
		}
	}
	slices.SortStableFunc(b.h.Events, func(x, y history.Event) int { return int(x.T - y.T) })
}

func withRefusal(retry int64) option {
	return func(_ *history.Call, r *history.Return) {
		r.Outcome, r.Each = history.Refused, []history.Figures{{Remaining: -1, RetryAfter: retry}}
	}
}

func withOutcome(o string) option { return func(_ *history.Call, r *history.Return) { r.Outcome = o } }

func asRepeat(_ *history.Call, r *history.Return) {
	r.Outcome, r.Via = history.Refused, history.ViaRepeat
}

// withRemaining sets what remains: -1 if that is not known.
func withRemaining(n int64) option {
	return func(_ *history.Call, r *history.Return) { r.Each = []history.Figures{{Remaining: n}} }
}

// withStart makes a call wait for its start for up to an hour, and its answer say when the start is.
func withStart(at int64) option {
	return func(c *history.Call, r *history.Return) { c.Wait, r.StartAt = hour, base+at }
}

func withID(id string) option { return func(c *history.Call, _ *history.Return) { c.Idem = id } }

func asReplay(_ *history.Call, r *history.Return) { r.Replayed = true }

func withCorrected(by string) option {
	return func(_ *history.Call, r *history.Return) { r.Corrected = []string{by} }
}

func withActual(cost string) option {
	return func(c *history.Call, _ *history.Return) { c.Actual = []string{cost} }
}

func withVersion(n int) option {
	return func(c *history.Call, _ *history.Return) { c.Charges[0].Version = n }
}

func withCharge(limit, key, cost string) option {
	return func(c *history.Call, _ *history.Return) {
		c.Charges = append(c.Charges, history.Charge{Limit: limit, Version: 1, Key: key, Cost: cost})
	}
}

func forKey(k string) func(*history.State) { return func(s *history.State) { s.Key = k } }

func tokenBucket(amount string, burst string) history.Limit {
	return history.Limit{Algorithm: history.TokenBucket, Amount: amount, Period: second, Burst: burst}
}

func fixedWindow(amount string, period int64) history.Limit {
	return history.Limit{Algorithm: history.FixedWindow, Amount: amount, Period: period}
}
