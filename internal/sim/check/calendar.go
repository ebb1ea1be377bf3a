package check

import "time"

// windowStart returns the start of the window in which a time lies, both in microseconds:
// by the epoch, or by the calendar of a zone.
func (r *rule) windowStart(at int64) int64 {
	if r.period > 0 {
		return at - at%r.period
	}
	now := time.UnixMicro(at).In(r.zone)
	if r.limit.Calendar == "hour" {
		return hourStart(now).UnixMicro()
	}
	y, m, d := now.Date()
	weekday := (int(now.Weekday()) + 6) % 7
	for ahead := 1; ; ahead-- { // it may have begun although an earlier date is shown again
		local := time.Date(y, m, d+ahead, 0, 0, 0, 0, time.UTC)
		switch r.limit.Calendar {
		case "week":
			local = time.Date(y, m, d-weekday+7*ahead, 0, 0, 0, 0, time.UTC)
		case "month":
			local = time.Date(y, m+time.Month(ahead), 1, 0, 0, 0, 0, time.UTC)
		}
		if start := firstInstant(local, r.zone); !start.After(now) {
			return start.UnixMicro()
		}
	}
}

// firstInstant returns the first instant at which the local clock shows local, written
// down in UTC, or later. docs/algorithms.md, "Windows".
func firstInstant(local time.Time, zone *time.Location) time.Time {
	t := local.Add(-27 * time.Hour).In(zone) // before it in every zone
	for {
		_, offset := t.Zone()
		_, end := t.ZoneBounds()
		at := local.Add(-time.Duration(offset) * time.Second)
		if at.Before(t) {
			at = t // where the clock was put forward, or it is shown already
		}
		if end.IsZero() || at.Before(end) {
			return at
		}
		t = end.In(zone)
	}
}

// hourStart returns the last instant not after now at which the local clock showed a
// full hour.
func hourStart(now time.Time) time.Time {
	for {
		_, offset := now.Zone()
		begin, _ := now.ZoneBounds()
		local := now.Unix() + int64(offset)
		start := time.Unix(now.Unix()-((local%3600)+3600)%3600, 0).In(now.Location())
		if begin.IsZero() || !start.Before(begin) {
			return start
		}
		now = begin.Add(-time.Second).In(now.Location())
	}
}

// shortest returns the length of the shortest window that touches the stretch of time,
// in microseconds.
func (r *rule) shortest(from, to int64) int64 {
	if r.period > 0 {
		return r.period
	}
	shortest, start := int64(0), r.windowStart(from)
	for range 10_000 {
		next := r.windowEnd(start)
		if length := next - start; shortest == 0 || length < shortest {
			shortest = length
		}
		if next > to {
			return shortest
		}
		start = next
	}
	return shortest / 4 // too long a run to look at: no window is as short as that
}

// windowEnd returns the end of the window that begins at start.
func (r *rule) windowEnd(start int64) int64 {
	if r.period > 0 {
		return start + r.period
	}
	reach := map[string]int64{"hour": 3, "day": 27, "week": 7*24 + 3, "month": 31*24 + 3}[r.limit.Calendar] * 3600e6
	low, high := start, start+reach // the first instant of another window
	for high-low > 1 {
		middle := low + (high-low)/2
		if r.windowStart(middle) == start {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}
