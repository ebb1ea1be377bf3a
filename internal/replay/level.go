package replay

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/law"
)

// The pictures are bounded: the whole log in columns, and a closer look at
// some consecutive requests.
const (
	maxPictures = 10 // of all limits, but minPictures of each
	minPictures = 3
	maxColumns  = 480
	maxMoments  = 120
	maxEdges    = 12 // drawn between two requests
)

// picture is the level of one key over time.
type picture struct {
	key      KeyReport
	fill     bool
	capacity float64
	start    int64 // of columns
	width    int64 // of a column
	columns  []column
	closer   []moment
}

// column is a stretch of time.
type column struct {
	peak   float64 // the highest level in it
	denied int64
}

// moment is a request, with the way of the level from the one before it.
type moment struct {
	at            int64
	way           []point
	before, after float64
	allowed       bool
	blocked       int64   // until when; 0: not blocked
	end           bool    // not a request, but the end of a closer look
	settles       bool    // not a request, but the end of a call: it is settled
	brim          bool    // the level stands at the capacity then
	over          float64 // of Fill: what did not fit
}

type point struct {
	at    int64
	level float64
}

// trace replays the keys refused most once more, each with a limiter of its own,
// and draws their pictures. Keys do not touch each other, so the decisions are
// those of the first time. The more limits there are, the fewer keys are drawn of each.
func (r *Report) trace(ctx context.Context, in *Requests, limits int) error {
	shown := r.Top[:min(len(r.Top), max(minPictures, maxPictures/limits))]
	if len(shown) == 0 {
		shown = []KeyReport{r.Busiest}
	}
	for _, k := range shown {
		t, number := newTracer(k, r, newPlayer(r.limit, in.cfg, true)), in.number[k.Key]
		err := in.events.each(ctx, func(e *request) error {
			if e.key != number {
				return nil
			}
			return t.request(ctx, e)
		})
		if err != nil {
			return err
		}
		p, err := t.finish(ctx, r.Last.UnixMicro())
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
	*player

	last    int64     // time of the last change of the level; 0: none yet
	state   law.State // after it
	expires []int64   // log law: when what was admitted counts no more

	reach    int64    // how far back a closer look goes
	ring     []moment // the last requests
	refusals int      // among them
	best     int      // score of closer
	tail     int      // requests to add to closer; -1: it is closed
}

func newTracer(k KeyReport, r *Report, p *player) *tracer {
	first, last := r.First.UnixMicro(), r.Last.UnixMicro()
	t := &tracer{
		picture: picture{key: k, fill: r.Fill, start: first, width: max(1, (last-first)/maxColumns+1)},
		player:  p, tail: -1,
	}
	t.capacity = t.units(t.p.Capacity)
	t.columns = make([]column, (last-first)/t.width+1)
	t.reach = 6 * max(t.p.DrainTime(), second)
	p.settling = t.before
	return t
}

func (t *tracer) units(credits int64) float64 { return float64(credits) / float64(t.p.Unit) }

// sample returns the level at a time after the last request.
func (t *tracer) sample(ctx context.Context, at int64) (float64, error) {
	*t.now = at
	if _, err := t.lim.Check(ctx, headgate.Charge{Limit: t.limit, Key: t.key.Key}); err != nil {
		return 0, fmt.Errorf("replay: level of %s: %w", quote(t.key.Key), err)
	}
	return t.units(t.rec.out.Used - t.rec.out.Granted*t.rec.cost), nil
}

// before follows the level to a time at which a call is settled.
func (t *tracer) before(ctx context.Context, at int64) (after func() error, err error) {
	way, err := t.advance(ctx, at)
	if err != nil {
		return nil, err
	}
	m := moment{at: at, way: way, settles: true}
	if m.before, err = t.sample(ctx, at); err != nil {
		return nil, err
	}
	return func() (err error) {
		if m.after, err = t.sample(ctx, at); err != nil {
			return err
		}
		t.last, t.state = at, t.rec.out.State
		if i := (at - t.start) / t.width; i < int64(len(t.columns)) {
			t.columns[i].peak = max(t.columns[i].peak, m.before, m.after)
			t.look(m)
		}
		return nil
	}, nil
}

// request takes for a request and records what it did to the level.
func (t *tracer) request(ctx context.Context, e *request) error {
	if err := t.settle(ctx, e.at); err != nil {
		return err
	}
	way, err := t.advance(ctx, e.at)
	if err != nil {
		return err
	}
	s, err := t.play(ctx, e, t.key.Key)
	if err != nil {
		return err
	}
	m := moment{
		at: e.at, way: way, allowed: s.allowed, before: t.units(s.before), after: t.units(s.after), blocked: s.blocked,
		brim: s.brim, over: float64(e.cost-s.accepted) / million,
	}
	t.last, t.state = e.at, t.rec.out.State
	c := &t.columns[(e.at-t.start)/t.width]
	c.peak = max(c.peak, m.before, m.after)
	if !s.allowed {
		c.denied++
	}
	if s.after > s.before && t.p.Kind == law.Log {
		t.expires = append(t.expires, e.at+t.p.Step)
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

// look keeps the last requests, and of all such stretches the one that shows
// the limit at work best: many refusals, with admissions among them.
func (t *tracer) look(m moment) {
	if t.tail > 0 && m.at-t.closer[0].at <= 2*t.reach {
		t.closer = append(t.closer, m)
		t.tail--
	} else if t.tail >= 0 {
		t.close(m.at, m.way)
	}
	if len(t.ring) == maxMoments {
		t.forget()
	}
	t.ring = append(t.ring, m)
	if m.refused() {
		t.refusals++
	}
	for t.ring[0].at < m.at-t.reach {
		t.forget()
	}
	denied, allowed := t.refusals, len(t.ring)-t.refusals
	if score := 1000*min(denied, 2*allowed) + allowed + denied; score > t.best {
		t.best = score
		t.closer = append(t.closer[:0:0], t.ring...)
		t.tail = maxMoments / 4
	}
}

// forget drops the oldest request of the ring.
func (t *tracer) forget() {
	if t.ring[0].refused() {
		t.refusals--
	}
	t.ring = t.ring[1:]
}

// close ends the closer look on the way to the next request.
func (t *tracer) close(to int64, way []point) {
	t.tail = -1
	last := t.closer[len(t.closer)-1]
	limit := last.at + t.reach/2
	m := moment{at: last.at, before: last.after, end: true}
	for _, p := range way {
		if p.at > limit {
			break
		}
		m.way = append(m.way, p)
		m.at, m.before = p.at, p.level
	}
	if n := len(way); n > 0 && to > way[n-1].at && way[n-1].level == 0 && len(m.way) == n {
		m.at = min(to, m.at+t.reach/20)
	}
	t.closer = append(t.closer, m)
}

// refused reports whether a request was refused.
func (m *moment) refused() bool { return !m.allowed && !m.settles }

// finish follows the level to the end of the log.
func (t *tracer) finish(ctx context.Context, end int64) (picture, error) {
	if err := t.settle(ctx, accesslog.MaxTime); err != nil {
		return picture{}, err
	}
	if _, err := t.advance(ctx, max(end, t.last)); err != nil {
		return picture{}, err
	}
	if t.tail >= 0 {
		far := t.last + t.reach/2
		way, err := t.advance(ctx, far)
		if err != nil {
			return picture{}, err
		}
		t.close(far, way)
	}
	return t.picture, nil
}
