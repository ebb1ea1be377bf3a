package replay

import (
	"context"
	"fmt"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/accesslog"
	"github.com/headgate/headgate/law"
)

// Bounds on pictures: the whole log in columns, and a closer look (closeUp) at some consecutive requests.
const (
	maxPictures = 10 // for all limits together, but at least minPictures for each
	minPictures = 3
	maxColumns  = 480
	maxMoments  = 120 // of recentMoments; closeUp may have a quarter more
	maxEdges    = 12  // of the line between two moments
)

// picture is the level of one key over time.
type picture struct {
	key      KeyReport
	fill     bool
	capacity float64
	start    int64 // time of the first column
	width    int64 // width of a column, in microseconds
	columns  []column
	closeUp  []moment // some consecutive requests
}

// column sums up a stretch of time.
type column struct {
	peak   float64 // the highest level in it
	denied int64   // refused requests
}

// moment is a request, a settlement or the end of a closer look.
type moment struct {
	at            int64
	path          []point // the level since the moment before
	before, after float64
	allowed       bool
	blockedUntil  int64   // 0: the key is not blocked
	isEnd         bool    // the moment is no request, but the end of the closer look
	isSettlement  bool    // the moment is no request, but the settlement of a call at its end
	brim          bool    // the level is at the capacity after the request
	overflow      float64 // with Fill: the cost that did not fit
}

type point struct {
	at    int64
	level float64
}

// trace replays the most refused keys again, each with its own limiter, and adds their pictures to the report. If Top
// is empty, it replays the busiest key. Keys do not affect each other, so the decisions are the same. The more limits
// are compared, the fewer pictures each has.
func (r *Report) trace(ctx context.Context, reqs *Requests, limitCount int) error {
	keys := r.Top[:min(len(r.Top), max(minPictures, maxPictures/limitCount))]
	if len(keys) == 0 {
		keys = []KeyReport{r.Busiest}
	}
	for _, k := range keys {
		t, keyNumber := newTracer(k, r, newPlayer(r.limit, reqs.cfg, true)), reqs.keyNumbers[k.Key]
		err := reqs.events.each(ctx, func(e *request) error {
			if e.key != keyNumber {
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

	lastChange  int64     // time of the latest request or settlement; 0: none yet
	state       law.State // the state after lastChange
	expiryTimes []int64   // with a log: the times at which admitted requests stop counting

	closeUpSpan    int64    // maximum length of recentMoments, in microseconds
	recentMoments  []moment // the latest requests, a candidate for closeUp
	refusals       int      // refused requests among recentMoments
	bestScore      int      // the score of closeUp
	pendingMoments int      // how many more may be added to closeUp; -1: none, it is complete or empty
}

// newTracer returns a tracer of a key. It sets onSettle of the player, which has to record levels.
func newTracer(k KeyReport, r *Report, p *player) *tracer {
	first, last := r.First.UnixMicro(), r.Last.UnixMicro()
	t := &tracer{
		picture: picture{key: k, fill: r.Fill, start: first, width: max(1, (last-first)/maxColumns+1)},
		player:  p, pendingMoments: -1,
	}
	t.capacity = t.units(t.params.Capacity)
	t.columns = make([]column, (last-first)/t.width+1)
	t.closeUpSpan = 6 * max(t.params.DrainTime(), second) // so that a full level can drain several times
	p.onSettle = t.settleRequest
	return t
}

func (t *tracer) units(credits int64) float64 { return float64(credits) / float64(t.params.Unit) }

// sample sets the clock to a time that is not before the last change, and returns the level then.
func (t *tracer) sample(ctx context.Context, at int64) (float64, error) {
	*t.now = at
	if _, err := t.limiter.Check(ctx, headgate.Charge{Limit: t.limit, Key: t.key.Key}); err != nil {
		return 0, fmt.Errorf("replay: level of %s: %w", quote(t.key.Key), err)
	}
	return t.units(t.recorder.out.Used - t.recorder.out.Granted*t.recorder.cost), nil
}

// settleRequest follows the level to the settlement of a call, and returns a function that records the level after it.
func (t *tracer) settleRequest(ctx context.Context, at int64) (after func() error, err error) {
	path, err := t.advance(ctx, at)
	if err != nil {
		return nil, err
	}
	m := moment{at: at, path: path, isSettlement: true}
	if m.before, err = t.sample(ctx, at); err != nil {
		return nil, err
	}
	return func() (err error) {
		if m.after, err = t.sample(ctx, at); err != nil {
			return err
		}
		t.lastChange, t.state = at, t.recorder.out.State
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
		at: e.at, path: path, allowed: s.allowed, before: t.units(s.levelBefore), after: t.units(s.levelAfter),
		blockedUntil: s.blockedUntil, brim: s.brim, overflow: float64(e.cost-s.accepted) / million,
	}
	t.lastChange, t.state = e.at, t.recorder.out.State
	c := &t.columns[(e.at-t.start)/t.width]
	c.peak = max(c.peak, m.before, m.after)
	if !s.allowed {
		c.denied++
	}
	if s.levelAfter > s.levelBefore && t.params.Kind == law.Log {
		t.expiryTimes = append(t.expiryTimes, e.at+t.params.Step)
	}
	t.add(m)
	return nil
}

// advance follows the level from the last change to a time, raises the peaks of the columns and returns the path.
func (t *tracer) advance(ctx context.Context, to int64) ([]point, error) {
	if t.lastChange == 0 {
		return nil, nil
	}
	emptyAt := min(to, max(t.state.EmptyAt, t.lastChange))
	for i := (t.lastChange-t.start)/t.width + 1; i < int64(len(t.columns)) && t.start+i*t.width < emptyAt; i++ {
		level, err := t.sample(ctx, t.start+i*t.width)
		if err != nil {
			return nil, err
		}
		t.columns[i].peak = max(t.columns[i].peak, level)
	}
	var path []point
	for _, at := range t.edges(emptyAt, to) {
		level, err := t.sample(ctx, at)
		if err != nil {
			return nil, err
		}
		path = append(path, point{at, level})
	}
	return path, nil
}

// edges returns the times since the last change at which the line of the level needs a point: before and after each
// jump, but for a sliding window at equal distances.
func (t *tracer) edges(emptyAt, to int64) (times []int64) {
	for len(t.expiryTimes) > 0 && t.expiryTimes[0] <= t.lastChange {
		t.expiryTimes = t.expiryTimes[1:]
	}
	switch {
	case emptyAt-t.lastChange < t.closeUpSpan/500: // too short to be visible
	case t.params.Kind == law.Log:
		for i := 0; i < len(t.expiryTimes) && t.expiryTimes[i] < emptyAt && len(times) < 2*maxEdges; i++ {
			if i == 0 || t.expiryTimes[i] > t.expiryTimes[i-1] {
				times = append(times, t.expiryTimes[i]-1, t.expiryTimes[i])
			}
		}
	case t.params.Kind == law.Window:
		for i := range int64(maxEdges) {
			times = append(times, t.lastChange+(emptyAt-t.lastChange)*(i+1)/(maxEdges+1))
		}
	case t.params.Anchor == law.Own && t.params.Step >= second:
		for s := t.state.At + t.params.Step; s < emptyAt && len(times) < 2*maxEdges; s += t.params.Step {
			if s > t.lastChange {
				times = append(times, s-1, s)
			}
		}
	}
	if t.state.EmptyAt <= to && emptyAt > t.lastChange+1 { // it may drop to 0 here
		times = append(times, emptyAt-1)
		if emptyAt < to {
			times = append(times, emptyAt)
		}
	}
	return times
}

// add adds a moment to recentMoments, and to closeUp while that is not complete. When recentMoments have the best score
// so far, they become closeUp: many refusals, with admissions among them.
func (t *tracer) add(m moment) {
	if t.pendingMoments > 0 && m.at-t.closeUp[0].at <= 2*t.closeUpSpan {
		t.closeUp = append(t.closeUp, m)
		t.pendingMoments--
	} else if t.pendingMoments >= 0 {
		t.endCloseUp(m.at, m.path)
	}
	if len(t.recentMoments) == maxMoments {
		t.dropOldest()
	}
	t.recentMoments = append(t.recentMoments, m)
	if m.refused() {
		t.refusals++
	}
	for t.recentMoments[0].at < m.at-t.closeUpSpan {
		t.dropOldest()
	}
	denied, allowed := t.refusals, len(t.recentMoments)-t.refusals
	if score := 1000*min(denied, 2*allowed) + allowed + denied; score > t.bestScore {
		t.bestScore = score
		t.closeUp = append(t.closeUp[:0:0], t.recentMoments...)
		t.pendingMoments = maxMoments / 4
	}
}

func (t *tracer) dropOldest() {
	if t.recentMoments[0].refused() {
		t.refusals--
	}
	t.recentMoments = t.recentMoments[1:]
}

// endCloseUp completes the closer look with the beginning of the path to the next request.
func (t *tracer) endCloseUp(to int64, path []point) {
	t.pendingMoments = -1
	last := t.closeUp[len(t.closeUp)-1]
	limit := last.at + t.closeUpSpan/2
	m := moment{at: last.at, before: last.after, isEnd: true}
	for _, p := range path {
		if p.at > limit {
			break
		}
		m.path = append(m.path, p)
		m.at, m.before = p.at, p.level
	}
	if n := len(path); n > 0 && to > path[n-1].at && path[n-1].level == 0 && len(m.path) == n {
		m.at = min(to, m.at+t.closeUpSpan/20) // a short line at level 0
	}
	t.closeUp = append(t.closeUp, m)
}

// refused reports whether the moment, which must not be the end, is a refused request.
func (m *moment) refused() bool { return !m.allowed && !m.isSettlement }

// finish settles all requests, follows the level to the end of the log, completes closeUp and returns the picture.
func (t *tracer) finish(ctx context.Context, end int64) (picture, error) {
	if err := t.settle(ctx, accesslog.MaxTime); err != nil {
		return picture{}, err
	}
	if _, err := t.advance(ctx, max(end, t.lastChange)); err != nil {
		return picture{}, err
	}
	if t.pendingMoments >= 0 {
		closeUpEnd := t.lastChange + t.closeUpSpan/2
		path, err := t.advance(ctx, closeUpEnd)
		if err != nil {
			return picture{}, err
		}
		t.endCloseUp(closeUpEnd, path)
	}
	return t.picture, nil
}
