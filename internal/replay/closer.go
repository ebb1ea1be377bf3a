package replay

import (
	"context"

	"github.com/headgate/headgate/internal/accesslog"
)

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
