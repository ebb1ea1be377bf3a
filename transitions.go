package headgate

import "time"

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

// most returns how many windows an interval of so many microseconds touches at most:
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
// them no further apart than so many microseconds, take from windows.
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

// mostMonths is most for months, whose lengths differ.
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
			c.starts = append(c.starts, c.start(i))
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
