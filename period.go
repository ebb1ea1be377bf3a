package headgate

import (
	"strconv"
	"strings"
	"time"
)

// periodUnits are the units of a period, longest first. A unit "d" is always 86,400 seconds; a calendar's day is
// written "day" instead.
var periodUnits = []struct {
	name string
	word string
	d    time.Duration
}{
	{"d", "day", 24 * time.Hour},
	{"h", "hour", time.Hour},
	{"m", "minute", time.Minute},
	{"s", "second", time.Second},
	{"ms", "millisecond", time.Millisecond},
	{"us", "microsecond", time.Microsecond},
}

// maxPeriod is the longest period: ten years, far inside what the laws hold.
const maxPeriod = 3660 * 24 * time.Hour

// ParsePeriod parses a length of time as limits write it: a whole number and one of us, ms, s, m, h, d, or several of
// them ("1h30m"). A unit alone means one of it ("s"). Errors are ErrInvalid.
func ParsePeriod(s string) (time.Duration, error) { return parsePeriod("period", s) }

// parsePeriod parses a period; errors name the field.
func parsePeriod(field, s string) (time.Duration, error) {
	bad := func(why string) (time.Duration, error) {
		return 0, Invalid(field, "%.100q %s", s, why)
	}
	if s == "" {
		return bad("is empty")
	}
	var total time.Duration
	for rest := s; rest != ""; {
		tail := strings.TrimLeft(rest, "0123456789")
		number := rest[:len(rest)-len(tail)]
		rest = strings.TrimLeft(tail, "abcdefghijklmnopqrstuvwxyz")
		name := tail[:len(tail)-len(rest)]
		if number == "" {
			if total != 0 || rest != "" {
				return bad("is not a length of time such as 30s, 15m or 30d")
			}
			number = "1"
		}
		count, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return bad("is too long")
		}
		var unit time.Duration
		for _, v := range periodUnits {
			if v.name == name {
				unit = v.d
			}
		}
		if unit == 0 {
			return bad("is not a length of time such as 30s, 15m or 30d")
		}
		if count > int64(maxPeriod/unit) || total+time.Duration(count)*unit > maxPeriod {
			return bad("is longer than 3660d")
		}
		total += time.Duration(count) * unit
	}
	if total == 0 {
		return bad("is 0; it must be above 0")
	}
	return total, nil
}

// formatPeriod writes a valid period with one unit, the longest that divides it, as ParsePeriod reads it.
func formatPeriod(d time.Duration) string {
	n, short, _ := inOneUnit(d)
	return strconv.FormatInt(n, 10) + short
}

// inOneUnit returns a period as a number of the longest unit that divides it, and that unit's name and word. If no unit
// divides the period, it is a number of nanoseconds.
func inOneUnit(d time.Duration) (n int64, name, word string) {
	for _, u := range periodUnits {
		if d%u.d == 0 {
			return int64(d / u.d), u.name, u.word
		}
	}
	return d.Nanoseconds(), "ns", "nanosecond"
}

// formatRatePeriod writes the period of a rate: "s" for a second, else with its number.
func formatRatePeriod(d time.Duration) string {
	if d == time.Second {
		return "s"
	}
	return formatPeriod(d)
}

// describePeriod returns a period in words: "second", "30 days".
func describePeriod(d time.Duration) string {
	n, _, word := inOneUnit(d)
	if n == 1 {
		return word
	}
	return strconv.FormatInt(n, 10) + " " + word + "s"
}

// describeInPeriod returns "in" and a period in words: "in one minute", "in 10 seconds".
func describeInPeriod(d time.Duration) string {
	word := describePeriod(d)
	if word[0] >= '0' && word[0] <= '9' {
		return "in " + word
	}
	return "in one " + word
}

// microsOf returns a period in microseconds, or an error about the field if it cannot be a period.
func microsOf(field string, d time.Duration) (int64, error) {
	switch {
	case d <= 0:
		return 0, Invalid(field, "must be above 0")
	case d%time.Microsecond != 0:
		return 0, Invalid(field, "%s is finer than a microsecond", d)
	case d > maxPeriod:
		return 0, Invalid(field, "%s is longer than 3660d", strings.TrimSuffix(d.String(), "0m0s"))
	}
	return d.Microseconds(), nil
}
