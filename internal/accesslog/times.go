package accesslog

import (
	"bytes"
	"math"
	"strconv"
)

// MaxTime is the last time that is read: the laws go as far, 142 years.
const MaxTime = 1 << 52

const (
	second = int64(1_000_000)
	day    = 86_400 * second
)

// dateCache remembers the last date that was read: most lines repeat it.
type dateCache struct {
	raw  [11]byte
	base int64 // microseconds at its midnight
	ok   bool
}

// access reads "17/May/2015:10:05:03 +0000".
func (c *dateCache) access(b []byte) (us int64, ok bool) {
	if len(b) != 26 || b[11] != ':' || b[20] != ' ' {
		return 0, false
	}
	if !c.ok || string(b[:11]) != string(c.raw[:]) {
		d, ok1 := digits(b[0:2])
		y, ok2 := digits(b[7:11])
		m := month(b[3:6])
		if !ok1 || !ok2 || m == 0 || b[2] != '/' || b[6] != '/' || d < 1 || d > monthLength(y, m) {
			return 0, false
		}
		copy(c.raw[:], b)
		c.base, c.ok = days(y, m, d)*day, true
	}
	clock, ok := clockTime(b[12:20])
	if !ok {
		return 0, false
	}
	offset, ok := zone(b[21:])
	if !ok {
		return 0, false
	}
	return inRange(c.base + clock - offset)
}

// rfc3339 reads "2015-05-17T10:05:03.25Z" and its relatives: a blank for the
// T, a comma for the point, a zone without colon, or none, which is UTC.
func rfc3339(b []byte) (us int64, ok bool) { //nolint:gocyclo // one check for each part, in their order
	if len(b) < 19 || b[4] != '-' || b[7] != '-' || b[10] != 'T' && b[10] != 't' && b[10] != ' ' {
		return 0, false
	}
	y, ok1 := digits(b[0:4])
	m, ok2 := digits(b[5:7])
	d, ok3 := digits(b[8:10])
	if !ok1 || !ok2 || !ok3 || m < 1 || m > 12 || d < 1 || d > monthLength(y, m) {
		return 0, false
	}
	clock, ok := clockTime(b[11:19])
	if !ok {
		return 0, false
	}
	us = days(y, m, d)*day + clock
	b = b[19:]
	if len(b) > 1 && (b[0] == '.' || b[0] == ',') {
		n := 1
		for scale := second / 10; n < len(b) && isDigit(b[n]); n++ {
			us += int64(b[n]-'0') * scale
			scale /= 10
		}
		if n == 1 {
			return 0, false
		}
		b = b[n:]
	}
	b = bytes.TrimPrefix(b, []byte{' '})
	if len(b) > 0 && string(b) != "Z" && string(b) != "z" && string(b) != "UTC" {
		offset, ok := zone(b)
		if !ok {
			return 0, false
		}
		us -= offset
	}
	return inRange(us)
}

// epoch reads seconds since the epoch, or by their size milli-, micro- or
// nanoseconds, with a fraction or an exponent.
func epoch(b []byte) (us int64, ok bool) {
	whole, frac, _ := bytes.Cut(b, []byte{'.'})
	if len(whole) == 19 && onlyDigits(whole) { // nanoseconds of today
		whole, frac = whole[:16], nil
	}
	n, ok := digits(whole)
	if len(whole) > 18 || !ok || !onlyDigits(frac) {
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || !(f > 0 && f < 1e19) {
			return 0, false
		}
		for f >= 1e11 { // not seconds
			f /= 1000
		}
		return inRange(int64(math.Round(f * 1e6)))
	}
	switch {
	case n < 1e11:
		us = n*second + fraction(frac, 6)
	case n < 1e14:
		us = n*1000 + fraction(frac, 3)
	case n < 1e17:
		us = n
	default:
		us = n / 1000
	}
	return inRange(us)
}

// fraction returns the first n digits after a point as a number.
func fraction(b []byte, n int) (v int64) {
	for i := range n {
		v *= 10
		if i < len(b) {
			v += int64(b[i] - '0')
		}
	}
	return v
}

func inRange(us int64) (int64, bool) { return us, us > 0 && us <= MaxTime }

// clockTime reads "10:05:03"; a leap second is the next second's first.
func clockTime(b []byte) (us int64, ok bool) {
	if len(b) != 8 || b[2] != ':' || b[5] != ':' {
		return 0, false
	}
	h, ok1 := digits(b[0:2])
	m, ok2 := digits(b[3:5])
	s, ok3 := digits(b[6:8])
	return (h*3600 + m*60 + s) * second, ok1 && ok2 && ok3 && h < 24 && m < 60 && s <= 60
}

// zone reads "+0200", "+02:00" or "+02".
func zone(b []byte) (us int64, ok bool) {
	if len(b) == 6 && b[3] == ':' {
		b = []byte{b[0], b[1], b[2], b[4], b[5]}
	}
	if len(b) == 3 {
		b = []byte{b[0], b[1], b[2], '0', '0'}
	}
	if len(b) != 5 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, ok1 := digits(b[1:3])
	m, ok2 := digits(b[3:5])
	us = (h*3600 + m*60) * second
	if b[0] == '-' {
		us = -us
	}
	return us, ok1 && ok2 && h <= 24 && m < 60
}

// digits reads a number of up to 18 digits.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(b) > 0
}

func onlyDigits(b []byte) bool {
	for _, c := range b {
		if !isDigit(c) {
			return false
		}
	}
	return true
}

// month returns 1 to 12, or 0.
func month(b []byte) int64 {
	if len(b) == 3 {
		if i := bytes.Index([]byte("JanFebMarAprMayJunJulAugSepOctNovDec"), b); i >= 0 && i%3 == 0 {
			return int64(i/3) + 1
		}
	}
	return 0
}

func monthLength(y, m int64) int64 {
	switch {
	case m == 2 && y%4 == 0 && (y%100 != 0 || y%400 == 0):
		return 29
	case m == 2:
		return 28
	case m == 4 || m == 6 || m == 9 || m == 11:
		return 30
	}
	return 31
}

// days returns the days from the epoch to a date of the Gregorian calendar.
func days(y, m, d int64) int64 {
	if m <= 2 { // count years from March, so that the leap day is the last
		y--
		m += 12
	}
	return 365*y + y/4 - y/100 + y/400 + (153*(m-3)+2)/5 + d - 1 - 719468
}
