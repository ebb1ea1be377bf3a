package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/store"
)

// underWay is a call that was not answered yet.
type underWay struct {
	charges int
	verb    string
	of      *process
}

// recorder writes the history of a simulation.
type recorder struct {
	s         *scheduler
	h         history.History
	calls     int
	underWay  map[int]underWay
	decisions int64 // answers of admitted or refused
	repeats   int64 // of these, refusals that no store was asked about
}

func (r *recorder) add(e history.Event) {
	e.T = int64(r.s.now())
	r.h.Events = append(r.h.Events, e)
}

func (r *recorder) fault(node, kind string, by, since time.Duration) {
	r.add(history.Event{
		Kind: history.KindFault, Node: node,
		Fault: &history.Fault{Kind: kind, By: by.Microseconds(), Since: int64(since)},
	})
}

func (r *recorder) limit(v *version) {
	told := v.told
	r.add(history.Event{Kind: history.KindLimit, Limit: &told})
}

// call records that a process asks, and returns the number of the call.
func (r *recorder) call(node, verb, idem string, of int, charges []charge) int {
	r.calls++
	c := &history.Call{ID: r.calls, Verb: verb, Idem: idem, Of: of}
	for i := range charges {
		g := &charges[i]
		cost := g.cost.String()
		if g.cost == (headgate.Cost{}) {
			cost = "1"
		}
		c.Charges = append(c.Charges, history.Charge{
			Limit: g.of.name, Version: g.version, Key: g.key, Cost: cost,
		})
	}
	r.underWay[c.ID] = underWay{len(charges), verb, r.s.cur.of}
	r.add(history.Event{Kind: history.KindCall, Node: node, Call: c})
	return r.calls
}

// decided records what a call was answered.
func (r *recorder) decided(node string, id int, d *headgate.Decision, err error) *history.Return {
	ret := &history.Return{ID: id}
	denied, refused := errors.AsType[*headgate.DeniedError](err)
	switch {
	case refused:
		d = &denied.Decision
		ret.Outcome = history.Refused
	case err != nil:
		ret.Outcome, ret.Error = history.Unknown, err.Error()
		if store.NothingDone(err) {
			ret.Outcome = history.Nothing
		}
	case d == nil:
		ret.Outcome = history.Done
	case d.Allowed:
		ret.Outcome = history.Admitted
	default:
		ret.Outcome = history.Refused
	}
	if d != nil && (refused || err == nil) {
		r.decisions++
		r.figures(ret, d, r.underWay[id].charges)
		if ret.Via == history.ViaRepeat {
			r.repeats++
		}
	}
	delete(r.underWay, id)
	r.add(history.Event{Kind: history.KindReturn, Node: node, Return: ret})
	return ret
}

func (r *recorder) figures(ret *history.Return, d *headgate.Decision, charges int) {
	if !d.At.IsZero() {
		ret.At = d.At.UnixMicro()
	}
	ret.Replayed, ret.Shared = d.Replayed, d.Shared
	switch d.Via {
	case headgate.ViaLocal:
		ret.Via = history.ViaRepeat
	case headgate.ViaPrefetch:
		ret.Via = history.ViaPrefetch
	default:
		ret.Via = history.ViaStore
	}
	if d.Each == nil && charges > 1 { // it does not say which one it is about
		return
	}
	each := d.Each
	if each == nil {
		each = []headgate.Figures{{
			Allowed: d.Allowed, Capacity: d.Capacity, Remaining: d.Remaining, RetryAfter: d.RetryAfter,
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
		ret.Each[f.Charge] = history.Figures{Capacity: f.Capacity, Remaining: f.Remaining, RetryAfter: retry}
		if !f.Allowed {
			ret.RefusedBy = f.Charge
		}
	}
}

// corrected records by how much a call has corrected what was charged.
func (r *recorder) corrected(node string, id int, costs []headgate.Cost, err error) {
	ret := r.decided(node, id, nil, err)
	for _, c := range costs {
		ret.Corrected = append(ret.Corrected, c.String())
	}
}

// released records what became of a renewal or a release.
func (r *recorder) released(node string, id int, err error) {
	if errors.Is(err, headgate.ErrLeaseLost) && store.Class(err) == nil {
		r.decided(node, id, nil, &headgate.DeniedError{})
		return
	}
	r.decided(node, id, nil, err)
}

// hung returns the calls of processes that live which were never answered.
func (r *recorder) hung() (list []string) {
	for id, c := range r.underWay {
		if !c.of.dead {
			list = append(list, fmt.Sprintf("call %d of %s: %s", id, c.of.name, c.verb))
		}
	}
	slices.Sort(list)
	return list
}
