package replay

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/law"
)

// Bounds on pictures: of the whole log in columns, and a closer look at some consecutive requests.
const (
	maxPictures = 10 // of all limits together, but at least minPictures of each
	minPictures = 3
	maxColumns  = 480
	maxMoments  = 120
	maxEdges    = 12 // of the line between two requests
)

// picture is the level of one key over time.
type picture struct {
	key      KeyReport
	fill     bool
	capacity float64
	start    int64 // time of the first column
	width    int64 // of a column, in microseconds
	columns  []column
	closer   []moment // the closer look
}

// column sums up a stretch of time.
type column struct {
	peak   float64 // the highest level in it
	denied int64
}

// moment is a request of a closer look, or another point of its line.
type moment struct {
	at            int64
	path          []point // of the level, since the moment before
	before, after float64
	allowed       bool
	blocked       int64   // end of the key's block; 0: not blocked
	end           bool    // not a request, but the end of the closer look
	settles       bool    // not a request, but the settlement of a call at its end
	brim          bool    // the level is at the capacity after the request
	overflow      float64 // with Fill: the cost that did not fit
}

// point is a level at a time.
type point struct {
	at    int64
	level float64
}

// trace replays the keys refused most again, each with its own limiter, and records their pictures. Keys do not affect
// each other, so the decisions are the same. The more limits there are, the fewer keys it records for each.
func (r *Report) trace(ctx context.Context, in *Requests, limits int) error {
	shown := r.Top[:min(len(r.Top), max(minPictures, maxPictures/limits))]
	if len(shown) == 0 {
		shown = []KeyReport{r.Busiest}
	}
	for _, k := range shown {
		t, number := newTracer(k, r, newPlayer(r.limit, in.cfg, true)), in.keyNumbers[k.Key]
		err := in.events.each(ctx, func(e *request) error {
			if e.key != number {
				return nil
			}
			return t.playRequest(ctx, e)
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
	state   law.State // after the last change
	expires []int64   // log law: times when the admitted requests stop counting

	reach    int64    // microseconds that a closer look goes back
	recent   []moment // the last requests, a candidate for closer
	refusals int      // requests of recent that were refused
	best     int      // score of closer
	tail     int      // requests still to be added to closer; -1: closer is complete
}

// newTracer returns a tracer of a key, with a player that records levels.
func newTracer(k KeyReport, r *Report, p *player) *tracer {
	first, last := r.First.UnixMicro(), r.Last.UnixMicro()
	t := &tracer{
		picture: picture{key: k, fill: r.Fill, start: first, width: max(1, (last-first)/maxColumns+1)},
		player:  p, tail: -1,
	}
	t.capacity = t.units(t.params.Capacity)
	t.columns = make([]column, (last-first)/t.width+1)
	t.reach = 6 * max(t.params.DrainTime(), second)
	p.onSettle = t.settleRequest
	return t
}

func (t *tracer) units(credits int64) float64 { return float64(credits) / float64(t.params.Unit) }

// sample returns the level at a time that is not before the last change.
func (t *tracer) sample(ctx context.Context, at int64) (float64, error) {
	*t.now = at
	if _, err := t.lim.Check(ctx, headgate.Charge{Limit: t.limit, Key: t.key.Key}); err != nil {
		return 0, fmt.Errorf("replay: level of %s: %w", quote(t.key.Key), err)
	}
	return t.units(t.rec.out.Used - t.rec.out.Granted*t.rec.cost), nil
}

// settleRequest follows the level to the settlement of a call, and returns a function that records the level after it.
func (t *tracer) settleRequest(ctx context.Context, at int64) (after func() error, err error) {
	path, err := t.advance(ctx, at)
	if err != nil {
		return nil, err
	}
	m := moment{at: at, path: path, settles: true}
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
			t.add(m)
		}
		return nil
	}, nil
}

// playRequest plays a request and records its effect on the level.
func (t *tracer) playRequest(ctx context.Context, e *request) error {
	if err := t.settle(ctx, e.at); err != nil {
		return err
	}
	path, err := t.advance(ctx, e.at)
	if err != nil {
		return err
	}
	s, err := t.play(ctx, e, t.key.Key)
	if err != nil {
		return err
	}
	m := moment{
		at: e.at, path: path, allowed: s.allowed, before: t.units(s.before), after: t.units(s.after),
		blocked: s.blocked, brim: s.brim, overflow: float64(e.cost-s.accepted) / million,
	}
	t.last, t.state = e.at, t.rec.out.State
	c := &t.columns[(e.at-t.start)/t.width]
	c.peak = max(c.peak, m.before, m.after)
	if !s.allowed {
		c.denied++
	}
	if s.after > s.before && t.params.Kind == law.Log {
		t.expires = append(t.expires, e.at+t.params.Step)
	}
	t.add(m)
	return nil
}

// advance follows the level from the last change to a time, raises the peaks of the columns and returns the path.
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
	var path []point
	for _, at := range t.edges(empty, to) {
		level, err := t.sample(ctx, at)
		if err != nil {
			return nil, err
		}
		path = append(path, point{at, level})
	}
	return path, nil
}

// edges returns the times, since the last change, at which the straight line of the level ends.
func (t *tracer) edges(empty, to int64) (times []int64) {
	for len(t.expires) > 0 && t.expires[0] <= t.last {
		t.expires = t.expires[1:]
	}
	switch {
	case empty-t.last < t.reach/500: // too short to be visible
	case t.params.Kind == law.Log:
		for i := 0; i < len(t.expires) && t.expires[i] < empty && len(times) < 2*maxEdges; i++ {
			if i == 0 || t.expires[i] > t.expires[i-1] {
				times = append(times, t.expires[i]-1, t.expires[i])
			}
		}
	case t.params.Kind == law.Window:
		for i := range int64(maxEdges) {
			times = append(times, t.last+(empty-t.last)*(i+1)/(maxEdges+1))
		}
	case t.params.Anchor == law.Own && t.params.Step >= second:
		for s := t.state.At + t.params.Step; s < empty && len(times) < 2*maxEdges; s += t.params.Step {
			if s > t.last {
				times = append(times, s-1, s)
			}
		}
	}
	if t.state.EmptyAt <= to && empty > t.last+1 { // a window's level drops to 0 here
		times = append(times, empty-1)
		if empty < to {
			times = append(times, empty)
		}
	}
	return times
}

// add adds a moment to the recent ones, and keeps as closer the stretch that shows the limit at work best: many
// refusals, with admissions among them.
func (t *tracer) add(m moment) {
	if t.tail > 0 && m.at-t.closer[0].at <= 2*t.reach {
		t.closer = append(t.closer, m)
		t.tail--
	} else if t.tail >= 0 {
		t.endCloser(m.at, m.path)
	}
	if len(t.recent) == maxMoments {
		t.dropOldest()
	}
	t.recent = append(t.recent, m)
	if m.refused() {
		t.refusals++
	}
	for t.recent[0].at < m.at-t.reach {
		t.dropOldest()
	}
	denied, allowed := t.refusals, len(t.recent)-t.refusals
	if score := 1000*min(denied, 2*allowed) + allowed + denied; score > t.best {
		t.best = score
		t.closer = append(t.closer[:0:0], t.recent...)
		t.tail = maxMoments / 4
	}
}

// dropOldest removes the oldest of the recent moments.
func (t *tracer) dropOldest() {
	if t.recent[0].refused() {
		t.refusals--
	}
	t.recent = t.recent[1:]
}

// endCloser completes the closer look with the beginning of the path to the next request.
func (t *tracer) endCloser(to int64, path []point) {
	t.tail = -1
	last := t.closer[len(t.closer)-1]
	limit := last.at + t.reach/2
	m := moment{at: last.at, before: last.after, end: true}
	for _, p := range path {
		if p.at > limit {
			break
		}
		m.path = append(m.path, p)
		m.at, m.before = p.at, p.level
	}
	if n := len(path); n > 0 && to > path[n-1].at && path[n-1].level == 0 && len(m.path) == n {
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
		path, err := t.advance(ctx, far)
		if err != nil {
			return picture{}, err
		}
		t.endCloser(far, path)
	}
	return t.picture, nil
}
