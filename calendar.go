package headgate

import (
	"sync"
	"sync/atomic"
	"time"
)

// CalendarUnit is a window that the calendar cuts. A day begins at its first
// existing instant, a week on Monday.
type CalendarUnit string

// The units of a calendar.
const (
	Minute CalendarUnit = "minute"
	Hour   CalendarUnit = "hour"
	Day    CalendarUnit = "day"
	Week   CalendarUnit = "week"
	Month  CalendarUnit = "month"
)

// longest returns a time that no window of the unit exceeds.
func (u CalendarUnit) longest() time.Duration {
	const day = 24 * time.Hour
	switch u {
	case Minute:
		return time.Minute
	case Hour:
		return 2 * time.Hour
	case Day:
		return day + 2*time.Hour
	case Week:
		return 7*day + 2*time.Hour
	default:
		return 31*day + 2*time.Hour
	}
}

// length returns how long a window of the unit is where the zone's offset does not
// change; of a month, the shortest there is.
func (u CalendarUnit) length() time.Duration {
	const day = 24 * time.Hour
	switch u {
	case Minute:
		return time.Minute
	case Hour:
		return time.Hour
	case Day:
		return day
	case Week:
		return 7 * day
	default:
		return 28 * day
	}
}

// calendar computes window boundaries in a time zone. Safe for concurrent use.
type calendar struct {
	unit CalendarUnit
	zone *time.Location
	last atomic.Pointer[[4]int64] // the boundaries computed last

	looked sync.Once // at the zone, for what follows: see transitions.go
	shifts []shift   // of days, weeks and hours
	starts []int64   // of months, in microseconds
}

func newCalendar(unit CalendarUnit, zone string) (*calendar, error) {
	switch unit {
	case Minute, Hour, Day, Week, Month:
	default:
		return nil, Invalid("period", "%q is no unit of the calendar: minute, hour, day, week, month", string(unit))
	}
	if zone == "" {
		zone = "UTC"
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || zone == "Local" {
		return nil, Invalid("zone", "%q is not a known time zone such as Europe/Berlin", zone)
	}
	return &calendar{unit: unit, zone: loc}, nil
}

// bounds returns four ascending boundaries with now, in microseconds, between
// the second and the third.
func (c *calendar) bounds(now int64) [4]int64 {
	if b := c.last.Load(); b != nil && b[1] <= now && now < b[2] {
		return *b
	}
	var b [4]int64
	if c.unit == Hour {
		b[1] = c.hour(now, -1)
		b[0] = c.hour(b[1]-1, -1)
		b[2] = c.hour(now+1, 1)
		b[3] = c.hour(b[2]+1, 1)
	} else {
		// Start one unit too late and step back: a start may be moved by a
		// change of the zone's offset.
		i := c.index(time.UnixMicro(now).In(c.zone)) + 1
		for c.start(i) > now {
			i--
		}
		b = [4]int64{c.start(i - 1), c.start(i), c.start(i + 1), c.start(i + 2)}
	}
	c.last.Store(&b)
	return b
}

// index numbers the days, weeks or months of local time.
func (c *calendar) index(t time.Time) int {
	switch c.unit {
	case Month:
		return t.Year()*12 + int(t.Month()) - 1
	default:
		y, m, d := t.Date()
		days := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
		if c.unit == Week {
			return (days + 3) / 7 // the epoch was a Thursday
		}
		return days
	}
}

// start returns the first instant at which the local clock shows the start of
// the i-th unit or later, in microseconds.
func (c *calendar) start(i int) int64 {
	var local time.Time // the local date and time, written down in UTC
	switch c.unit {
	case Month:
		local = time.Date(i/12, time.Month(i%12+1), 1, 0, 0, 0, 0, time.UTC)
	case Week:
		local = time.Unix(int64(i*7-3)*86400, 0).UTC()
	default:
		local = time.Unix(int64(i)*86400, 0).UTC()
	}
	const near = 26 * 3600 // no zone is further from UTC, no change of one larger
	s := local.Unix()
	guess := s - c.offset(s)
	guess = s - c.offset(guess)
	if c.offset(guess-near) == c.offset(guess) && c.offset(guess+near) == c.offset(guess) {
		return guess * 1e6
	}
	for u := guess - near; u <= guess+near; u += 60 {
		if u+c.offset(u) >= s {
			return u * 1e6
		}
	}
	return guess * 1e6
}

// hour returns the instant next to t, at or before it (dir -1) or at or after
// it (dir 1), at which the local clock shows a full hour.
func (c *calendar) hour(t int64, dir int64) int64 {
	u := t / 1e6
	if dir > 0 {
		u = (t + 1e6 - 1) / 1e6
	}
	if r := u % 60; r != 0 { // offsets are whole minutes
		u -= r
		if dir > 0 {
			u += 60
		}
	}
	for (u+c.offset(u))%3600 != 0 {
		u += 60 * dir
	}
	return u * 1e6
}

// offset returns the zone's seconds east of UTC at a Unix time.
func (c *calendar) offset(unix int64) int64 {
	_, off := time.Unix(unix, 0).In(c.zone).Zone()
	return int64(off)
}
