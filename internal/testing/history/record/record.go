// Package record records the calls of a Limiter or a Client and their answers as a history, for the simulator and for
// tests that break real servers.
package record

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/sched"
	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/store"
)

// Recorder records one history. It is safe for concurrent use.
type Recorder struct {
	// UnknownFor is how long after an unknown outcome the call may still be done. 0: not known.
	UnknownFor time.Duration

	mu       sync.Mutex
	now      func() time.Duration
	h        history.History
	lastCall int                   // number of the newest call
	underWay map[int]history.Event // unanswered calls, by their numbers
}

// New returns a recorder. now returns the time since the start of the run and never goes back; nil: the clock of this
// machine, from now on.
func New(now func() time.Duration) *Recorder {
	if now == nil {
		begin := sched.Now()
		now = func() time.Duration { return sched.Since(begin) }
	}
	return &Recorder{now: now, underWay: map[int]history.Event{}}
}

func (r *Recorder) Now() time.Duration { return r.now() }

// History returns the history. Call it when nothing is recorded any more.
func (r *Recorder) History() *history.History { return &r.h }

// addLocked adds an event; r.mu is held.
func (r *Recorder) addLocked(e history.Event) {
	e.T = int64(r.now())
	r.h.Events = append(r.h.Events, e)
}

// add adds an event; r.mu is not held.
func (r *Recorder) add(e history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(e)
}

// Limit records a version of a limit. Call it before a call names the version.
func (r *Recorder) Limit(l history.Limit) { r.add(history.Event{Limit: &l}) }

// Removal records that an override is removed. Call it before the removal.
func (r *Recorder) Removal(removal history.Removal) { r.add(history.Event{Removal: &removal}) }

// Fault records a fault of a process or of a part of the system. The calls of a process that Kill ends have no return.
func (r *Recorder) Fault(node string, f history.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f.Kind == history.Kill {
		maps.DeleteFunc(r.underWay, func(_ int, e history.Event) bool { return e.Node == node })
	}
	r.addLocked(history.Event{Node: node, Fault: &f})
}

// Unanswered returns the numbers of the calls without an answer whose process lives. Call it when nothing is recorded.
func (r *Recorder) Unanswered() []int { return slices.Sorted(maps.Keys(r.underWay)) }

// State records the final state of a cell.
func (r *Recorder) State(limit history.Limit, st headgate.Status) {
	r.add(history.Event{State: &history.State{
		Limit: limit.Name, Version: limit.Version, Key: st.Key, Used: st.Used.String(), At: st.At.UnixMicro(),
	}})
}

// Charge returns a charge in the format of histories.
func Charge(l *history.Limit, c headgate.Charge) history.Charge {
	cost := c.Cost.String()
	if c.Cost == (headgate.Cost{}) {
		cost = "1"
	}
	return history.Charge{Limit: l.Name, Version: l.Version, Key: c.Key, Cost: cost, Keep: c.Keep.String()}
}

// Call records a call of a process. It sets the number of the call, and returns it.
func (r *Recorder) Call(node string, c history.Call) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastCall++
	c.ID = r.lastCall
	r.underWay[c.ID] = history.Event{Node: node, Call: &c}
	r.addLocked(r.underWay[c.ID])
	return c.ID
}

// Answer is what a call returned. Each field but Err is for some verbs only.
type Answer struct {
	Decision  *headgate.Decision // nil: the verb has none, or the call waited
	Err       error
	At        time.Time       // block and unblock: the time of the decision
	StartAt   time.Time       // reserve
	Corrected []headgate.Cost // settle and cancel
	Charged   []headgate.Cost // extend
}

// Decision records the answer of Take, Check, Reserve or Acquire.
func (r *Recorder) Decision(node string, id int, d headgate.Decision, err error) {
	r.Return(node, id, Answer{Decision: &d, Err: err})
}

// Return records the answer of any call, and panics unless the call is under way.
func (r *Recorder) Return(node string, id int, a Answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.underWay[id].Call
	if c == nil {
		panic(fmt.Sprintf("record: call %d is not under way", id))
	}
	delete(r.underWay, id)
	ret := &history.Return{ID: id}
	d, err := a.Decision, a.Err
	if denied, ok := errors.AsType[*headgate.DeniedError](err); ok {
		d, err = &denied.Decision, nil
	}
	hasWaited := errors.Is(a.Err, headgate.ErrDeadline)
	leaseLost := errors.Is(err, headgate.ErrLeaseLost) && store.Class(err) == nil
	switch {
	case leaseLost && (c.Verb == history.Renew || c.Verb == history.Release):
		ret.Outcome = history.Refused
	case err != nil:
		ret.Outcome, ret.Error = history.Unknown, err.Error()
		if store.NothingDone(err) {
			ret.Outcome = history.Nothing
		} else if r.UnknownFor > 0 {
			ret.Until = int64(r.now() + r.UnknownFor)
		}
	case d == nil && c.Verb == history.Take: // a call that waited
		ret.Outcome = history.Admitted
	case d == nil:
		ret.Outcome = history.Done
	case hasWaited && !d.Allowed: // earlier waiters in the queue may be the reason for the refusal
		ret.Outcome = history.Refused
	default:
		setDecision(ret, d, len(c.Charges))
	}
	if !a.At.IsZero() {
		ret.At = a.At.UnixMicro()
	}
	if !a.StartAt.IsZero() {
		ret.StartAt = a.StartAt.UnixMicro()
	}
	for _, cost := range a.Corrected {
		ret.Corrected = append(ret.Corrected, cost.String())
	}
	for _, cost := range a.Charged {
		ret.Charged = append(ret.Charged, cost.String())
	}
	r.addLocked(history.Event{Node: node, Return: ret})
}

// setDecision sets the fields of a return from a decision about some charges.
func setDecision(ret *history.Return, d *headgate.Decision, charges int) {
	ret.Outcome = history.Refused
	if d.Allowed {
		ret.Outcome = history.Admitted
	}
	if !d.At.IsZero() {
		ret.At = d.At.UnixMicro()
	}
	ret.Replayed, ret.Via = d.Replayed, vias[d.Via]
	each := d.Each
	switch {
	case each == nil && charges > 1: // the decision does not say which charge it is about
		return
	case each == nil:
		each = []headgate.ChargeDecision{{
			Allowed: d.Allowed, Capacity: d.Capacity, Remaining: d.Remaining, RetryAfter: d.RetryAfter,
			Applied: d.Applied,
		}}
	}
	for range charges {
		ret.Each = append(ret.Each, history.Figures{Remaining: -1})
	}
	for _, f := range each {
		retry := f.RetryAfter.Microseconds()
		if f.RetryAfter == headgate.Never {
			retry = -1
		}
		ret.Each[f.Charge] = history.Figures{
			Capacity: f.Capacity, Remaining: f.Remaining, RetryAfter: retry, Version: versionOf(f.Applied),
		}
	}
}

var vias = map[headgate.Via]string{
	headgate.ViaStore: history.ViaStore, headgate.ViaLocal: history.ViaRepeat,
	headgate.ViaPrefetch: history.ViaPrefetch, headgate.ViaFallback: history.ViaFallback,
}

// Because returns a reason, for headgate.Limit.Because, by which the recorder finds the version in a decision.
func Because(version int) string { return becauseVersion + strconv.Itoa(version) }

const becauseVersion = "version "

// versionOf returns the version in the reason of a decision; 0: the reason has no version.
func versionOf(applied string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(applied, becauseVersion))
	return n
}
