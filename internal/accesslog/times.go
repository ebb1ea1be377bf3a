package accesslog

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// MaxTime is the latest time of a request, in microseconds since 1970 (142 years later): the laws accept no later one.
// Times in this file are such microseconds, and above 0.
const MaxTime = 1 << 52

const dayMicros = 86_400_000_000

// monthNames are the names of months. Package time would also accept them in another case.
var monthNames = []byte("JanFebMarAprMayJunJulAugSepOctNovDec")

// parseTime reads a time up to MaxTime by a layout of package time. secondsAt is the index of the seconds in text:
// package time has no leap second, which parseTime reads as the next second.
func parseTime(layout, text string, secondsAt int) (us int64, ok bool) {
	leap := time.Duration(0)
	if strings.HasPrefix(text[secondsAt:], "60") {
		text, leap = text[:secondsAt]+"59"+text[secondsAt+2:], time.Second
	}
	t, err := time.Parse(layout, text)
	us = t.Add(leap).UnixMicro()
	return us, err == nil && us > 0 && us <= MaxTime
}

// parseCLFTime reads "17/May/2015:10:05:03 +0000".
func parseCLFTime(b []byte) (us int64, ok bool) {
	if len(b) != 26 || !bytes.Contains(monthNames, b[3:6]) {
		return 0, false
	}
	return parseTime("02/Jan/2006:15:04:05 -0700", string(b), 18)
}

// zoneLayouts are the layouts of zones by the length of their text.
var zoneLayouts = map[int]string{len("Z"): "Z07", len("+02"): "Z07", len("+0200"): "Z0700", len("+02:00"): "Z07:00"}

// parseRFC3339 reads "2015-05-17T10:05:03.25Z" and variants: a blank instead of the T, a comma instead of the point, a
// zone without a colon, or no zone, which is UTC.
func parseRFC3339(text []byte) (us int64, ok bool) {
	if len(text) < 19 || text[13] != ':' || text[10] != 'T' && text[10] != 't' && text[10] != ' ' {
		return 0, false
	}
	clock, zone := string(text[11:]), "Z"
	if i := strings.IndexAny(clock, "+-Zz U"); i >= 0 {
		clock, zone = clock[:i], strings.TrimPrefix(clock[i:], " ")
		if zone == "" || zone == "z" || zone == "UTC" {
			zone = "Z"
		}
	}
	layout, ok := zoneLayouts[len(zone)]
	if !ok || len(clock) < 8 {
		return 0, false
	}
	return parseTime("2006-01-02T15:04:05"+layout, string(text[:10])+"T"+clock+zone, 17)
}

// parseEpoch reads seconds since the epoch, with a fraction or an exponent. Of more than 11 digits before the point it
// reads milliseconds, of more than 14 microseconds, of more than 17 nanoseconds.
func parseEpoch(b []byte) (us int64, ok bool) {
	whole, frac, _ := strings.Cut(string(b), ".")
	if !onlyDigits(whole + frac) {
		f, err := strconv.ParseFloat(string(b), 64)
		if err != nil || !(f > 0 && f < 1e19) {
			return 0, false
		}
		return parseEpoch(strconv.AppendFloat(nil, f, 'f', -1, 64))
	}
	whole = strings.TrimLeft(whole, "0")
	point := len(whole) // index of the decimal point of seconds
	if point > 19 {
		return 0, false
	}
	for point > 11 { // milliseconds or finer
		point -= 3
	}
	us, err := strconv.ParseInt((whole + frac + "000000")[:point+6], 10, 64)
	return us, err == nil && us > 0 && us <= MaxTime
}

// configuredNames returns the configured field, or the default names if there is none.
func configuredNames(field string, defaults []string) []string {
	if field == "" {
		return defaults
	}
	return []string{field}
}

// parseAnyTime reads a time in the format of RFC 3339, of the common log format, or since the epoch.
func parseAnyTime(s []byte) (at int64, ok bool) {
	if at, ok = parseRFC3339(s); !ok {
		if at, ok = parseEpoch(s); !ok {
			at, ok = parseCLFTime(s)
		}
	}
	return at, ok
}

// parseDigits reads a number without a sign.
func parseDigits(b []byte) (n int64, ok bool) {
	u, err := strconv.ParseUint(string(b), 10, 63)
	return int64(u), err == nil
}

func onlyDigits[T ~string | ~[]byte](text T) bool {
	for i := range len(text) {
		if !isDigit(text[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
