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
	switch u {
	case Minute:
		return time.Minute
	case Hour:
		return 2 * time.Hour
	case Month:
		return 31*24*time.Hour + 2*time.Hour
	default:
		return u.length() + 2*time.Hour
	}
}

// length returns how long a window of the unit is where the zone's offset does not
// change; of a month, the shortest there is.
func (u CalendarUnit) length() time.Duration {
	const day = 24 * time.Hour
	return map[CalendarUnit]time.Duration{
		Minute: time.Minute, Hour: time.Hour, Day: day, Week: 7 * day, Month: 28 * day,
	}[u]
}

// calendar computes window boundaries in a time zone. Safe for concurrent use.
type calendar struct {
	unit CalendarUnit
	zone *time.Location
	last atomic.Pointer[[4]int64] // the boundaries computed last

	looked sync.Once // at the zone, for what follows
	shifts []shift   // of days, weeks and hours
	starts []int64   // of months, in microseconds
}

func newCalendar(unit CalendarUnit, zone string) (*calendar, error) {
	switch unit {
	case Minute, Hour, Day, Week, Month:
	default:
		return nil, Invalid("period", "%q is no unit of the calendar: minute, hour, day, week, month", string(unit))
	}
	loc, err := time.LoadLocation(zone) // of which "" is UTC
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
		for c.startOf(i) > now {
			i--
		}
		b = [4]int64{c.startOf(i - 1), c.startOf(i), c.startOf(i + 1), c.startOf(i + 2)}
	}
	c.last.Store(&b)
	return b
}

// index numbers the days, weeks or months of local time.
func (c *calendar) index(t time.Time) int {
	if c.unit == Month {
		return t.Year()*12 + int(t.Month()) - 1
	}
	y, m, d := t.Date()
	days := int(time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400)
	if c.unit == Week {
		return (days + 3) / 7 // the epoch was a Thursday
	}
	return days
}

// startOf returns the first instant at which the local clock shows the start of
// the i-th unit or later, in microseconds.
func (c *calendar) startOf(i int) int64 {
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

// The years in which a zone's changes of offset are looked at: from the first that a
// clock in microseconds since the epoch can show, to the last that the laws can hold.
const (
	firstYear = 1970
	lastYear  = 2255
)

// shift is a change of a zone's offset.
type shift struct {
	at      int64 // Unix time
	shorter int64 // seconds by which it makes the window around it shorter; less than 0: longer
}

// most returns how many windows an interval of this many microseconds touches at most:
// a closed one, from just before the end of a window.
func (c *calendar) most(micros int64) int64 {
	if micros == 0 {
		return 1
	}
	c.looked.Do(c.look)
	if c.unit == Month {
		return c.mostMonths(micros)
	}
	// The local clock runs through one length of the unit in each window, and may
	// gain on the time itself by what changes of the offset add to it.
	length := c.unit.length().Microseconds()
	micros += c.gain(micros-1) * 1e6
	windows := 1 + micros/length
	if micros%length > 0 {
		windows++
	}
	return windows
}

// gain returns the most seconds that changes of the offset, the first and the last of
// them at most this many microseconds apart, take from windows.
func (c *calendar) gain(micros int64) (most int64) {
	for i := range c.shifts {
		sum := int64(0)
		for j := i; j < len(c.shifts) && c.shifts[j].at-c.shifts[i].at <= micros/1e6; j++ {
			sum += c.shifts[j].shorter
			most = max(most, sum)
		}
	}
	return most
}

// mostMonths allows for the lengths of months.
func (c *calendar) mostMonths(micros int64) int64 {
	starts, most, j := c.starts, 0, 0
	for i := range starts {
		for j < len(starts) && starts[j]-starts[i] < micros {
			j++
		}
		most = max(most, j-i)
	}
	return int64(most) + 1
}

// look finds out how the zone changes: some hundred changes, or 3,400 months. It
// runs when a bound is first asked for, not when a limit is made.
func (c *calendar) look() {
	if c.unit == Month {
		for i := firstYear * 12; i < (lastYear+1)*12; i++ {
			c.starts = append(c.starts, c.startOf(i))
		}
		return
	}
	end := time.Date(lastYear, 12, 31, 0, 0, 0, 0, time.UTC)
	for t := nextChange(time.Unix(0, 0).In(c.zone)); !t.IsZero() && t.Before(end); t = nextChange(t) {
		at := t.Unix()
		if s := (shift{at, c.shorter(at)}); s.shorter != 0 {
			c.shifts = append(c.shifts, s)
		}
	}
}

// nextChange returns when the offset may change next after t; the zero Time if never.
// Far ahead, where a rule tells, package time takes each year to have 365 days: what
// it returns need not be a change, and on the last day of a leap year is no later.
func nextChange(t time.Time) time.Time {
	_, next := t.ZoneBounds()
	if !next.IsZero() && !next.After(t) {
		return t.Add(24 * time.Hour)
	}
	return next
}

// shorter returns by how many seconds a change of the offset makes the window around
// it shorter.
func (c *calendar) shorter(at int64) int64 {
	before, after := c.offset(at-1), c.offset(at)
	if c.unit != Hour {
		return after - before
	}
	// An hour ends when the clock next shows a full one, so it is cut or prolonged
	// by a change that is not of whole hours only.
	const hour = 3600
	begun := (at + before) % hour
	if begun == 0 {
		begun = hour
	}
	left := (hour - (at+after)%hour) % hour
	return hour - (begun + left)
}
