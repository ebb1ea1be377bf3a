package check

import (
	"sort"
	"time"
)

// window returns the start and the end of the window in which a time lies, in microseconds: windows follow the epoch,
// or the calendar of a zone.
func (r *rule) window(at int64) (start, end int64) {
	if r.period > 0 {
		start = at - at%r.period
		return start, start + r.period
	}
	hours := map[string]int{"hour": 3, "day": 27, "week": 7*24 + 3, "month": 31*24 + 3}[r.limit.Calendar] // at most
	maxMicros, number := hours*3600e6, r.windowNumber(at)
	start = at - int64(sort.Search(maxMicros, func(i int) bool { return r.windowNumber(at-int64(i)-1) != number }))
	end = at + int64(sort.Search(maxMicros, func(i int) bool { return r.windowNumber(at+int64(i)) != number }))
	return start, end
}

// windowNumber numbers the windows of a calendar, by the latest hour or date that the local clock has shown until a
// time: the clock may show an earlier one again. docs/algorithms.md, "Windows".
func (r *rule) windowNumber(at int64) int64 {
	now := time.UnixMicro(at).In(r.zone)
	if r.limit.Calendar == "hour" {
		return hourStart(now).Unix()
	}
	begin, _ := now.ZoneBounds()
	if begin.IsZero() {
		return r.date(now)
	}
	return max(r.date(now), r.date(begin.Add(-1).In(r.zone)))
}

// date numbers the days, the weeks from Monday, or the months that a local clock shows.
func (r *rule) date(now time.Time) int64 {
	y, m, d := now.Date()
	day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / (24 * 3600)
	switch r.limit.Calendar {
	case "week":
		return (day + 3) / 7
	case "month":
		return int64(y)*12 + int64(m)
	}
	return day
}

// hourStart returns the last instant, now at the latest, at which the local clock showed a full hour.
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

// shortest returns the length in microseconds of the shortest window that touches an interval.
func (r *rule) shortest(from, to int64) int64 {
	if r.period > 0 {
		return r.period
	}
	shortest := int64(0)
	for range 10_000 {
		start, end := r.window(from)
		if shortest == 0 || end-start < shortest {
			shortest = end - start
		}
		if end > to {
			return shortest
		}
		from = end
	}
	return shortest / 4 // the interval has more windows: none of them is as short as that
}
