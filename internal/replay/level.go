package replay

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

// The pictures are bounded: the whole log in columns, and a closer look at
// some consecutive requests.
const (
	maxPictures = 10
	maxColumns  = 480
	maxMoments  = 120
	maxEdges    = 12 // drawn between two requests
)

// picture is the level of one key over time.
type picture struct {
	key      KeyReport
	capacity float64
	start    int64 // of columns
	width    int64 // of a column
	columns  []column
	closer   []moment
}

// column is a stretch of time.
type column struct {
	peak            float64 // the highest level in it
	allowed, denied int64
}

// moment is a request, with the way of the level from the one before it.
type moment struct {
	at            int64
	way           []point
	before, after float64
	allowed       bool
	blocked       int64 // until when; 0: not blocked
	end           bool  // not a request, but the end of a closer look
}

type point struct {
	at    int64
	level float64
}

// recorder keeps a store's raw outcome: the level is in it, to the credit.
type recorder struct {
	store.Store
	cost int64
	out  law.Outcome
}

func (r *recorder) Apply(ctx context.Context, ops []law.Op, outs []law.Outcome) error {
	err := r.Store.Apply(ctx, ops, outs)
	if err == nil && len(ops) == 1 {
		r.cost, r.out = ops[0].Cost, outs[0]
	}
	return err
}

// trace replays the keys refused most once more, with a limiter of their own,
// and draws their pictures. Keys do not touch each other, so the decisions are
// those of the first time.
func trace(ctx context.Context, limit headgate.Limit, in *input) error {
	r := &in.report
	if r.Requests == 0 {
		return nil
	}
	rec := &recorder{}
	lim, clock := newLimiter(func(s store.Store) store.Store { rec.Store = s; return rec })
	shown := r.Top[:min(len(r.Top), maxPictures)]
	if len(shown) == 0 {
		shown = []KeyReport{r.Busiest}
	}
	tracers := make(map[uint32]*tracer, len(shown))
	ordered := make([]*tracer, len(shown))
	for i, k := range shown {
		ordered[i] = newTracer(limit, k, r, lim, clock, rec)
		tracers[in.number[k.Key]] = ordered[i]
	}
	err := in.events.each(ctx, func(t int64, key uint32) error {
		if tr := tracers[key]; tr != nil {
			return tr.request(ctx, t)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, tr := range ordered {
		p, err := tr.finish(ctx, r.Last.UnixMicro())
		if err != nil {
			return err
		}
		r.pictures = append(r.pictures, p)
	}
	return nil
}

// tracer follows the level of one key.
type tracer struct {
	picture
	limit headgate.Limit
	p     law.Params
	lim   *headgate.Limiter
	clock *int64
	rec   *recorder

	last    int64     // time of the last request; 0: none yet
	state   law.State // after it
	expires []int64   // log law: when what was admitted counts no more

	reach    int64    // how far back a closer look goes
	ring     []moment // the last requests
	refusals int      // among them
	best     int      // score of closer
	tail     int      // requests to add to closer; -1: it is closed
}

func newTracer(limit headgate.Limit, k KeyReport, r *Report, lim *headgate.Limiter, clock *int64,
	rec *recorder,
) *tracer {
	first, last := r.First.UnixMicro(), r.Last.UnixMicro()
	p := limit.Params()
	t := &tracer{
		picture: picture{key: k, start: first, width: max(1, (last-first)/maxColumns+1)},
		limit:   limit, p: p, lim: lim, clock: clock, rec: rec, tail: -1,
	}
	t.capacity = t.units(p.Capacity)
	t.columns = make([]column, (last-first)/t.width+1)
	t.reach = 6 * max(drainTime(p), second)
	return t
}

// drainTime is how long a full cell takes to be empty.
func drainTime(p law.Params) int64 {
	switch {
	case p.Kind == law.Window:
		return 2 * p.Step
	case p.Kind == law.Bucket && p.Drain < p.Capacity:
		return int64(float64(p.Capacity) / float64(p.Drain) * float64(p.Step))
	}
	return p.Step
}

func (t *tracer) units(credits int64) float64 { return float64(credits) / float64(t.p.Unit) }

func (t *tracer) charge() headgate.Charge { return headgate.Charge{Limit: t.limit, Key: t.key.Key} }

// sample returns the level at a time after the last request.
func (t *tracer) sample(ctx context.Context, at int64) (float64, error) {
	*t.clock = at
	if _, err := t.lim.Check(ctx, t.charge()); err != nil {
		return 0, fmt.Errorf("replay: level of %s: %w", quote(t.key.Key), err)
	}
	return t.units(t.rec.out.Used - t.rec.out.Granted*t.rec.cost), nil
}

// request takes for a request and records what it did to the level.
func (t *tracer) request(ctx context.Context, at int64) error {
	way, err := t.advance(ctx, at)
	if err != nil {
		return err
	}
	*t.clock = at
	d, err := t.lim.Take(ctx, t.charge())
	if err != nil {
		return fmt.Errorf("replay: level of %s: %w", quote(t.key.Key), err)
	}
	out := &t.rec.out
	m := moment{
		at: at, way: way, allowed: d.Allowed,
		before: t.units(out.Used - out.Granted*t.rec.cost), after: t.units(out.Used),
	}
	if out.State.BlockedUntil > at {
		m.blocked = out.State.BlockedUntil
	}
	t.last, t.state = at, out.State
	c := &t.columns[(at-t.start)/t.width]
	c.peak = max(c.peak, m.before, m.after)
	if d.Allowed {
		c.allowed++
		if t.p.Kind == law.Log {
			t.expires = append(t.expires, at+t.p.Step)
		}
	} else {
		c.denied++
	}
	t.look(m)
	return nil
}

// advance follows the level from the last request to a time, and returns the
// way it went.
func (t *tracer) advance(ctx context.Context, to int64) ([]point, error) {
	if t.last == 0 {
		return nil, nil
	}
	empty := min(to, max(t.state.EmptyAt, t.last))
	for i := (t.last-t.start)/t.width + 1; i < int64(len(t.columns)) && t.start+i*t.width < empty; i++ {
		level, err := t.sample(ctx, t.start+i*t.width)
		if err != nil {
			return nil, err
		}
		t.columns[i].peak = max(t.columns[i].peak, level)
	}
	var way []point
	for _, at := range t.edges(empty, to) {
		level, err := t.sample(ctx, at)
		if err != nil {
			return nil, err
		}
		way = append(way, point{at, level})
	}
	return way, nil
}

// edges returns the times up to which the level went straight.
func (t *tracer) edges(empty, to int64) (times []int64) {
	for len(t.expires) > 0 && t.expires[0] <= t.last {
		t.expires = t.expires[1:]
	}
	switch {
	case empty-t.last < t.reach/500: // nobody could see them
	case t.p.Kind == law.Log:
		for i := 0; i < len(t.expires) && t.expires[i] < empty && len(times) < 2*maxEdges; i++ {
			if i == 0 || t.expires[i] > t.expires[i-1] {
				times = append(times, t.expires[i]-1, t.expires[i])
			}
		}
	case t.p.Kind == law.Window:
		for i := range int64(maxEdges) {
			times = append(times, t.last+(empty-t.last)*(i+1)/(maxEdges+1))
		}
	case t.p.Anchor == law.Own && t.p.Step >= second:
		for s := t.state.At + t.p.Step; s < empty && len(times) < 2*maxEdges; s += t.p.Step {
			if s > t.last {
				times = append(times, s-1, s)
			}
		}
	}
	if t.state.EmptyAt <= to && empty > t.last+1 { // a window falls here, at once
		times = append(times, empty-1)
		if empty < to {
			times = append(times, empty)
		}
	}
	return times
}
