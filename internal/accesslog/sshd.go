package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// sshdReader reads the syslog of an SSH server:
//
//	Mar 27 14:54:57 HOST sshd[2967]: Invalid user support from 95.152.57.58
//	Mar 27 14:54:59 HOST sshd[2967]: Failed password for invalid user support from 95.152.57.58 port 1101 ssh2
//	Mar 29 10:05:01 HOST sshd[1071]: message repeated 5 times: [ Failed password for root from 10.0.0.1 port 1 ssh2]
//
// The time may also be RFC 3339, or seconds since the epoch with a fraction.
type sshdReader struct {
	fields
	attempts bool

	year    int       // of the latest line; 0: unknown yet
	changed time.Time // when the log was last changed, from which the first line's year is guessed
	month   int       // of the latest line; 0: no line yet
	rolled  bool      // a year has ended in this log

	// Processes that logged "Invalid user" and no failure since: the latest ones, and a generation of older ones.
	announced, announcedBefore map[string]bool

	lines    int64 // lines about an attempt
	pairs    int64 // of lines, those that are the second about the same attempt
	repeats  int64 // of lines, those that say "message repeated"
	repeated int64 // attempts in all repeats
}

func openSSHD(_ *format, names []string, cfg Config) Reader {
	return &sshdReader{
		fields: newRowFields(names, cfg), attempts: cfg.Attempts, year: cfg.Year, changed: cfg.Changed,
		announced: map[string]bool{},
	}
}

var (
	errSyslog  = errors.New("does not begin with a syslog time such as Mar 27 14:54:57 and a host")
	errLeapDay = errors.New("has a date that the year assumed for it does not have")
	errFrom    = errors.New("is about a password or a user, but does not say from where")
)

// Read implements Reader.
func (a *sshdReader) Read(line []byte) (Record, error) {
	at, rest, err := a.time(line)
	if err != nil {
		return Record{}, err
	}
	i := bytes.IndexByte(rest, ' ') // the host
	if i <= 0 {
		return Record{}, errSyslog
	}
	tag, msg, ok := bytes.Cut(rest[i+1:], []byte(": "))
	if !ok || !bytes.HasPrefix(tag, []byte("sshd")) {
		return Record{Foreign: true, Skip: "is of another program"}, nil
	}
	count := 1
	if inner, n, ok := unpackRepeated(msg); ok {
		msg, count = inner, n
	}
	// A line either announces an invalid user, or reports a failure.
	who, invalid := bytes.CutPrefix(msg, []byte("Invalid user "))
	if !invalid {
		if who, ok = failedUser(msg); !ok {
			return Record{Skip: "is not about a password that failed or an invalid user"}, nil
		}
	}
	again := false // whether this is the first failure after "Invalid user"
	if w, ok := bytes.CutPrefix(who, []byte("invalid user ")); ok && !invalid {
		who = w
		again = a.announced[string(tag)] || a.announcedBefore[string(tag)]
	}
	// A user may contain " from " as well; the server wrote the last one.
	i = bytes.LastIndex(who, []byte(" from "))
	if i < 0 {
		return Record{}, errFrom
	}
	var r row
	r[user], r[ip] = who[:i], who[i+len(" from "):]
	if r[ip], ok = address(r[ip], invalid); !ok {
		return Record{}, errFrom
	}
	if invalid {
		a.announce(tag)
	} else if again {
		delete(a.announced, string(tag))
		delete(a.announcedBefore, string(tag))
		a.pairs++
	}
	if count > 1 {
		a.repeats++
		a.repeated += int64(count)
	}
	a.lines++
	rec := Record{At: at, Count: 1, Values: valuesOf(&a.fields, r[:])}
	if a.attempts {
		rec.Count = count
		if again {
			rec.Count--
		}
		if rec.Count == 0 {
			rec.Skip = "is the second line about an attempt"
		}
	}
	return rec, nil
}

// failedUser returns the text after "Failed METHOD for " if the method is a password. PAM, and others with their own
// prompts, use keyboard-interactive.
func failedUser(msg []byte) (who []byte, ok bool) {
	method, who, ok := bytes.Cut(msg, []byte(" for "))
	password := string(method) == "Failed password" || bytes.HasPrefix(method, []byte("Failed keyboard-interactive"))
	return who, ok && password
}

// Bounds on what is remembered of announcements, since a log can have any number. A process fails soon after its
// announcement, or never.
const (
	maxAnnounced = 4096 // processes of a generation
	maxTag       = 64   // bytes of a tag such as sshd[2967]
)

// announce notes that a process has announced an invalid user.
func (a *sshdReader) announce(tag []byte) {
	if len(tag) > maxTag {
		return
	}
	if len(a.announced) >= maxAnnounced {
		a.announced, a.announcedBefore = map[string]bool{}, a.announced
	}
	a.announced[string(tag)] = true
}

// address reads the address after "from ", and needs the port after it to tell that the address was not cut. portless
// accepts an address without a port, which older servers write with "Invalid user".
func address(b []byte, portless bool) (addr []byte, ok bool) {
	addr, _, ok = bytes.Cut(b, []byte(" port "))
	if !ok && portless {
		_, err := netip.ParseAddr(string(addr))
		ok = err == nil
	}
	return addr, ok && len(addr) > 0 && bytes.IndexByte(addr, ' ') < 0
}

// maxRepeats bounds the number of requests in one line.
const maxRepeats = 1_000_000

// unpackRepeated unpacks "message repeated 5 times: [ MESSAGE]".
func unpackRepeated(msg []byte) (inner []byte, n int, ok bool) {
	rest, ok := bytes.CutPrefix(msg, []byte("message repeated "))
	if !ok {
		return nil, 0, false
	}
	number, inner, ok := bytes.Cut(rest, []byte(" times: [ "))
	v, isNumber := digits(number)
	if !ok || !isNumber || len(number) > 9 || v < 1 || v > maxRepeats {
		return nil, 0, false
	}
	return bytes.TrimSuffix(inner, []byte{']'}), int(v), true
}

// time reads the time at the beginning of a line.
func (a *sshdReader) time(line []byte) (us int64, rest []byte, err error) {
	if len(line) > 0 && isDigit(line[0]) {
		stamp, rest, _ := bytes.Cut(line, []byte{' '})
		us, ok := rfc3339(stamp)
		if !ok && bytes.IndexByte(stamp, '.') > 0 { // journalctl --output short-unix writes seconds
			us, ok = epoch(stamp)
		}
		if ok {
			return us, rest, nil
		}
		return 0, nil, errSyslog
	}
	if !hasSyslogTime(line) {
		return 0, nil, errSyslog
	}
	in := func(year int) (us int64, ok bool) {
		return parseTime("2006 "+time.Stamp, fmt.Sprintf("%04d %s", year, line[:15]), len("2006 Jan _2 15:04:"))
	}
	if _, ok := in(2000); !ok { // a leap year has every date
		return 0, nil, errSyslog
	}
	y := a.yearOf(1+bytes.Index(months, line[:3])/3, in)
	us, ok := in(y)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %s in %d", errLeapDay, line[:6], y)
	}
	return us, line[16:], nil
}

// hasSyslogTime reports whether a line seems to begin with a time of syslog: a month, a day and a time of day.
func hasSyslogTime(line []byte) bool {
	return len(line) > 15 && line[3] == ' ' && line[6] == ' ' && line[15] == ' ' && bytes.Contains(months, line[:3])
}

// yearOf returns the year of a line of month m. The first line is of the year in which the log was last changed, or of
// the year before if it would lie in the future otherwise. When the month goes back, the next year has begun; but a
// line of the previous month is a late one. in returns the line's time if it is of a year.
func (a *sshdReader) yearOf(m int, in func(year int) (us int64, ok bool)) int {
	if a.year == 0 {
		a.year = a.changed.UTC().Year()
		if us, _ := in(a.year); us > a.changed.UnixMicro()+day {
			a.year--
		}
	}
	lastMonth := a.month
	switch {
	case lastMonth == 0, m == lastMonth-1:
	case m < lastMonth:
		a.year++
		a.rolled = true
	case a.rolled && lastMonth == 1 && m == 12:
		return a.year - 1 // a late line of the old year
	}
	if lastMonth == 0 || m != lastMonth-1 {
		a.month = m
	}
	return a.year
}

// Notes implements Reader: they explain the number of requests.
func (a *sshdReader) Notes() []string {
	if a.pairs == 0 && a.repeats == 0 {
		return nil
	}
	attempts := a.lines - a.pairs - a.repeats + a.repeated
	s := fmt.Sprintf("%s about failed passwords and invalid users", Plural(a.lines, "line"))
	if a.pairs > 0 {
		s += fmt.Sprintf(", of which %s %s a second line about the same attempt", Comma(a.pairs),
			verb(a.pairs, "is", "are"))
	}
	if a.repeats > 0 {
		s += fmt.Sprintf(", %s %s for %s", Comma(a.repeats), verb(a.repeats, "stands", "stand"),
			Plural(a.repeated, "attempt"))
	}
	if a.attempts {
		return []string{s + ": " + Plural(attempts, "attempt") + ", each a request"}
	}
	return []string{s + "; each line is a request (they are " + Plural(attempts, "attempt") + ")"}
}

// verb returns the form of a verb after a number.
func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
