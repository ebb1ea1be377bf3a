package headgate

import (
	"sync"
	"sync/atomic"
	"time"
)

// CalendarUnit is the length of a calendar window. A day begins at its first existing instant, a week on Monday.
type CalendarUnit string

// The units of a calendar.
const (
	Minute CalendarUnit = "minute"
	Hour   CalendarUnit = "hour"
	Day    CalendarUnit = "day"
	Week   CalendarUnit = "week"
	Month  CalendarUnit = "month"
)

// maxLength returns a duration that no window of the unit exceeds.
func (u CalendarUnit) maxLength() time.Duration {
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

// length returns how long a window of the unit is if the zone's offset does not change; for a month, the shortest one.
func (u CalendarUnit) length() time.Duration {
	const day = 24 * time.Hour
	return map[CalendarUnit]time.Duration{
		Minute: time.Minute, Hour: time.Hour, Day: day, Week: 7 * day, Month: 28 * day,
	}[u]
}

// calendar computes window boundaries in a time zone. Safe for concurrent use.
type calendar struct {
	unit       CalendarUnit
	zone       *time.Location
	lastBounds atomic.Pointer[[4]int64] // the last result of bounds, for calls within the same window

	loadOnce sync.Once // calls loadChanges, which sets the next fields
	shifts   []shift   // changes of the offset that change the length of a window, if the unit is not Month
	starts   []int64   // starts of all months in microseconds, if the unit is Month
}

// newCalendar returns the calendar of a unit in an IANA time zone, or ErrInvalid.
func newCalendar(unit CalendarUnit, zone string) (*calendar, error) {
	switch unit {
	case Minute, Hour, Day, Week, Month:
	default:
		return nil, Invalid("period", "%q is no unit of the calendar: minute, hour, day, week, month", string(unit))
	}
	loc, err := time.LoadLocation(zone) // "" is UTC
	if err != nil || zone == "Local" {
		return nil, Invalid("zone", "%q is not a known time zone such as Europe/Berlin", zone)
	}
	return &calendar{unit: unit, zone: loc}, nil
}

// bounds returns four ascending window boundaries in microseconds: now lies in the second of the three windows.
func (c *calendar) bounds(now int64) [4]int64 {
	if b := c.lastBounds.Load(); b != nil && b[1] <= now && now < b[2] {
		return *b
	}
	var b [4]int64
	if c.unit == Hour {
		b[1] = c.fullHour(now, -1)
		b[0] = c.fullHour(b[1]-1, -1)
		b[2] = c.fullHour(now+1, 1)
		b[3] = c.fullHour(b[2]+1, 1)
	} else {
		// Begin one unit too late and step back: a change of the zone's offset may move a start.
		i := c.index(time.UnixMicro(now).In(c.zone)) + 1
		for c.startOf(i) > now {
			i--
		}
		b = [4]int64{c.startOf(i - 1), c.startOf(i), c.startOf(i + 1), c.startOf(i + 2)}
	}
	c.lastBounds.Store(&b)
	return b
}

// index returns the number of the day, week or month in which t lies.
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

// startOf returns the start of the unit with index i: the first instant, in microseconds, at which the local clock
// shows that start or later.
func (c *calendar) startOf(i int) int64 {
	var local time.Time // the local date and time, as if it were UTC
	switch c.unit {
	case Month:
		local = time.Date(i/12, time.Month(i%12+1), 1, 0, 0, 0, 0, time.UTC)
	case Week:
		local = time.Unix(int64(i*7-3)*86400, 0).UTC()
	default:
		local = time.Unix(int64(i)*86400, 0).UTC()
	}
	const maxOffset = 26 * 3600 // no zone is further from UTC, and no change of an offset is larger
	s := local.Unix()
	guess := s - c.offset(s)
	guess = s - c.offset(guess)
	if c.offset(guess-maxOffset) == c.offset(guess) && c.offset(guess+maxOffset) == c.offset(guess) {
		return guess * 1e6
	}
	for u := guess - maxOffset; u <= guess+maxOffset; u += 60 {
		if u+c.offset(u) >= s {
			return u * 1e6
		}
	}
	return guess * 1e6
}

// fullHour returns the instant nearest to t, at or before t (dir -1) or at or after t (dir 1), at which the local clock
// shows a full hour.
func (c *calendar) fullHour(t int64, dir int64) int64 {
	u := t / 1e6
	if dir > 0 {
		u = (t + 1e6 - 1) / 1e6
	}
	if r := u % 60; r != 0 { // since 1972 all offsets are whole minutes
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
	_, seconds := time.Unix(unix, 0).In(c.zone).Zone()
	return int64(seconds)
}

// The years in which loadChanges looks for changes: from the first that a clock in microseconds since the epoch can
// show, to the last that the laws can represent.
const (
	firstYear = 1970
	lastYear  = 2255
)

// shift is a change of a zone's offset.
type shift struct {
	at         int64 // Unix time of the change
	shortening int64 // seconds by which the change shortens the window around it; less than 0: prolongs it
}

// maxWindows returns how many windows a closed interval of this many microseconds touches at most, such as one that
// begins just before the end of a window.
func (c *calendar) maxWindows(micros int64) int64 {
	if micros == 0 {
		return 1
	}
	c.loadOnce.Do(c.loadChanges)
	if c.unit == Month {
		return c.maxMonths(micros)
	}
	// In each window the local clock advances by one length of the unit. In the interval, changes of the offset can
	// make it advance by more than the interval's length.
	length := c.unit.length().Microseconds()
	micros += c.maxShortening(micros-1) * 1e6
	windows := 1 + micros/length
	if micros%length > 0 {
		windows++
	}
	return windows
}

// maxShortening returns the most seconds by which changes of the offset within this many microseconds shorten windows.
func (c *calendar) maxShortening(micros int64) (seconds int64) {
	for i := range c.shifts {
		sum := int64(0)
		for j := i; j < len(c.shifts) && c.shifts[j].at-c.shifts[i].at <= micros/1e6; j++ {
			sum += c.shifts[j].shortening
			seconds = max(seconds, sum)
		}
	}
	return seconds
}

// maxMonths returns how many months a closed interval of this many microseconds touches at most.
func (c *calendar) maxMonths(micros int64) int64 {
	starts, maxStarts, j := c.starts, 0, 0
	for i := range starts {
		for j < len(starts) && starts[j]-starts[i] < micros {
			j++
		}
		maxStarts = max(maxStarts, j-i)
	}
	return int64(maxStarts) + 1
}

// loadChanges computes the zone's changes of offset, a few hundred, or the starts of 3,400 months. It runs when a bound
// is first needed, not when a limit is made.
func (c *calendar) loadChanges() {
	if c.unit == Month {
		for i := firstYear * 12; i < (lastYear+1)*12; i++ {
			c.starts = append(c.starts, c.startOf(i))
		}
		return
	}
	end := time.Date(lastYear, 12, 31, 0, 0, 0, 0, time.UTC)
	for t := nextChange(time.Unix(0, 0).In(c.zone)); !t.IsZero() && t.Before(end); t = nextChange(t) {
		at := t.Unix()
		if s := (shift{at, c.shortening(at)}); s.shortening != 0 {
			c.shifts = append(c.shifts, s)
		}
	}
}

// nextChange returns when the offset may change next after t; the zero Time if never. Far in the future package time
// computes changes by a rule, and assumes years of 365 days: its result need not be a change, and on the last day of a
// leap year it is not after t.
func nextChange(t time.Time) time.Time {
	_, next := t.ZoneBounds()
	if !next.IsZero() && !next.After(t) {
		return t.Add(24 * time.Hour)
	}
	return next
}

// shortening returns by how many seconds a change of the offset at a Unix time shortens the window around it.
func (c *calendar) shortening(at int64) int64 {
	oldOffset, newOffset := c.offset(at-1), c.offset(at)
	if c.unit != Hour {
		return newOffset - oldOffset
	}
	// An hour's window ends when the clock next shows a full hour, so a change shortens or prolongs it only if the
	// change is not by whole hours.
	const hour = 3600
	elapsed := (at + oldOffset) % hour
	if elapsed == 0 {
		elapsed = hour
	}
	remaining := (hour - (at+newOffset)%hour) % hour
	return hour - (elapsed + remaining)
}
