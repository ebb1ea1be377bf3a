package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// auth reads the syslog of an SSH server:
//
//	Mar 27 14:54:57 HOST sshd[2967]: Invalid user support from 95.152.57.58
//	Mar 27 14:54:59 HOST sshd[2967]: Failed password for invalid user support from 95.152.57.58 port 1101 ssh2
//	Mar 29 10:05:01 HOST sshd[1071]: message repeated 5 times: [ Failed password for root from 10.0.0.1 port 1 ssh2]
//
// The time may also be RFC 3339, or seconds since the epoch with a fraction.
type auth struct {
	fields
	attempts bool

	year    int       // of the latest line; 0: not known yet
	changed time.Time // what the first line's year is guessed from
	month   int       // of the latest line; 0: there is none
	rolled  bool      // a year has ended in this log

	// Processes that said "Invalid user", and nothing failed since: those of late, and those before them.
	announced, before map[string]bool

	lines    int64 // about an attempt
	pairs    int64 // of them, a second one about the same attempt
	repeats  int64 // of them, about several attempts at once
	repeated int64 // how often
}

func openSSHD(_ *format, names []string, cfg Config) Reader {
	return &auth{
		fields: chooseFields(names, cfg), attempts: cfg.Attempts, year: cfg.Year, changed: cfg.Changed,
		announced: map[string]bool{},
	}
}

var (
	errSyslog  = errors.New("does not begin with a syslog time such as Mar 27 14:54:57 and a host")
	errLeapDay = errors.New("has a date that the year assumed for it does not have")
	errFrom    = errors.New("is about a password or a user, but does not say from where")
)

// Read implements Reader.
func (a *auth) Read(line []byte) (Record, error) {
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
	if inner, n, ok := repeated(msg); ok {
		msg, count = inner, n
	}
	// The line that announces a process's invalid user, or a failure.
	who, invalid := bytes.CutPrefix(msg, []byte("Invalid user "))
	if !invalid {
		if who, ok = failed(msg); !ok {
			return Record{Skip: "is not about a password that failed or an invalid user"}, nil
		}
	}
	again := false // the first failure after that line
	if w, ok := bytes.CutPrefix(who, []byte("invalid user ")); ok && !invalid {
		who = w
		again = a.announced[string(tag)] || a.before[string(tag)]
	}
	// A user may contain " from " as well; the last one is the server's.
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
		delete(a.before, string(tag))
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

// failed returns what follows "Failed METHOD for ", of the methods by which a password is requested. That of PAM, and
// of others that ask in their own words, is keyboard-interactive.
func failed(msg []byte) (who []byte, ok bool) {
	method, who, ok := bytes.Cut(msg, []byte(" for "))
	asked := string(method) == "Failed password" || bytes.HasPrefix(method, []byte("Failed keyboard-interactive"))
	return who, ok && asked
}

// A process fails soon after it has announced a user, or never. A log can name as many as it likes.
const (
	maxAnnounced = 4096 // processes of late
	maxTag       = 64   // bytes of a name such as sshd[2967]
)

// announce notes that a process has announced an invalid user.
func (a *auth) announce(tag []byte) {
	if len(tag) > maxTag {
		return
	}
	if len(a.announced) >= maxAnnounced {
		a.announced, a.before = map[string]bool{}, a.announced
	}
	a.announced[string(tag)] = true
}

// address reads what follows "from ". A line that was cut within its address is not about another one: a port
// follows, which older servers leave out where they announce a user.
func address(b []byte, bare bool) (addr []byte, ok bool) {
	addr, _, ok = bytes.Cut(b, []byte(" port "))
	if !ok && bare {
		_, err := netip.ParseAddr(string(addr))
		ok = err == nil
	}
	return addr, ok && len(addr) > 0 && bytes.IndexByte(addr, ' ') < 0
}

// maxRepeats bounds what a line can claim to stand for.
const maxRepeats = 1_000_000

// repeated unpacks "message repeated 5 times: [ MESSAGE]".
func repeated(msg []byte) (inner []byte, n int, ok bool) {
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
func (a *auth) time(line []byte) (us int64, rest []byte, err error) {
	if len(line) > 0 && isDigit(line[0]) {
		stamp, rest, _ := bytes.Cut(line, []byte{' '})
		us, ok := rfc3339(stamp)
		if !ok && bytes.IndexByte(stamp, '.') > 0 { // seconds, by journalctl --output short-unix
			us, ok = epoch(stamp)
		}
		if ok {
			return us, rest, nil
		}
		return 0, nil, errSyslog
	}
	if !syslogTime(line) {
		return 0, nil, errSyslog
	}
	in := func(year int) (us int64, ok bool) {
		return parseTime("2006 "+time.Stamp, fmt.Sprintf("%04d %s", year, line[:15]), len("2006 Jan _2 15:04:"))
	}
	if _, ok := in(2000); !ok { // which has every date
		return 0, nil, errSyslog
	}
	y := a.yearOf(1+bytes.Index(months, line[:3])/3, in)
	us, ok := in(y)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %s in %d", errLeapDay, line[:6], y)
	}
	return us, line[16:], nil
}

// syslogTime reports whether a line looks as if it began as those of syslog do: with a month, a day and a time.
func syslogTime(line []byte) bool {
	return len(line) > 15 && line[3] == ' ' && line[6] == ' ' && line[15] == ' ' && bytes.Contains(months, line[:3])
}

// yearOf returns the year of a line. A log ends in the year in which it was
// last changed; one whose first line would then lie in the future began in
// the year before. When the month goes back the next year has begun, except
// by a single month: that is a line that came late. in says when a line is in a year.
func (a *auth) yearOf(m int, in func(year int) (us int64, ok bool)) int {
	if a.year == 0 {
		a.year = a.changed.UTC().Year()
		if us, _ := in(a.year); us > a.changed.UnixMicro()+day {
			a.year--
		}
	}
	last := a.month
	switch {
	case last == 0, m == last-1:
	case m < last:
		a.year++
		a.rolled = true
	case a.rolled && last == 1 && m == 12:
		return a.year - 1 // a late line of the old year
	}
	if last == 0 || m != last-1 {
		a.month = m
	}
	return a.year
}

// Notes implements Reader: they say what one should know about the count.
func (a *auth) Notes() []string {
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
