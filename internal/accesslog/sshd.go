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
	attempts bool // Config.Attempts

	year      int       // year of the latest line without a year; 0: not known yet
	changedAt time.Time // when the log was last changed, from which the first line's year is guessed
	month     int       // month of the latest line; 0: no line was read yet
	yearEnded bool      // a year has ended in this log

	// Tags of processes that logged "Invalid user" and no failure since: a recent and an older generation.
	invalidUserTags, olderInvalidUserTags map[string]bool

	attemptLines     int64 // lines about an attempt
	secondLines      int64 // attemptLines that are the second line about the same attempt
	repeatLines      int64 // attemptLines that say "message repeated"
	repeatedAttempts int64 // the sum of the counts of repeatLines
}

func openSSHD(_ *format, names []string, cfg Config) Reader {
	return &sshdReader{
		fields: newRowFields(names, cfg), attempts: cfg.Attempts, year: cfg.Year, changedAt: cfg.Changed,
		invalidUserTags: map[string]bool{},
	}
}

var (
	errSyslog      = errors.New("does not begin with a syslog time such as Mar 27 14:54:57 and a host")
	errLeapDay     = errors.New("has a date that the year assumed for it does not have")
	errSSHDAddress = errors.New("is about a password or a user, but does not say from where")
)

func (rd *sshdReader) Read(line []byte) (Record, error) {
	at, rest, err := rd.readTime(line)
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
	// A line reports either an invalid user or a failure.
	userAddress, isInvalidUser := bytes.CutPrefix(msg, []byte("Invalid user "))
	if !isInvalidUser {
		if userAddress, ok = failedUser(msg); !ok {
			return Record{Skip: "is not about a password that failed or an invalid user"}, nil
		}
	}
	isSecondLine := false // whether the line is the first failure after "Invalid user"
	if tail, ok := bytes.CutPrefix(userAddress, []byte("invalid user ")); ok && !isInvalidUser {
		userAddress = tail
		isSecondLine = rd.invalidUserTags[string(tag)] || rd.olderInvalidUserTags[string(tag)]
	}
	// A user may contain " from " as well; the server wrote the last one.
	i = bytes.LastIndex(userAddress, []byte(" from "))
	if i < 0 {
		return Record{}, errSSHDAddress
	}
	var r row
	r[colUser], r[colIP] = userAddress[:i], userAddress[i+len(" from "):]
	if r[colIP], ok = address(r[colIP], isInvalidUser); !ok {
		return Record{}, errSSHDAddress
	}
	if isInvalidUser {
		rd.rememberTag(tag)
	} else if isSecondLine {
		delete(rd.invalidUserTags, string(tag))
		delete(rd.olderInvalidUserTags, string(tag))
		rd.secondLines++
	}
	if count > 1 {
		rd.repeatLines++
		rd.repeatedAttempts += int64(count)
	}
	rd.attemptLines++
	rec := Record{At: at, Count: 1, Values: valuesOf(&rd.fields, r[:])}
	if rd.attempts {
		rec.Count = count
		if isSecondLine {
			rec.Count--
		}
		if rec.Count == 0 {
			rec.Skip = "is the second line about an attempt"
		}
	}
	return rec, nil
}

// failedUser returns the user and the address after "Failed METHOD for ", if the method is a password. PAM and others
// with prompts of their own use keyboard-interactive.
func failedUser(msg []byte) (userAddress []byte, ok bool) {
	method, userAddress, ok := bytes.Cut(msg, []byte(" for "))
	isPassword := string(method) == "Failed password" || bytes.HasPrefix(method, []byte("Failed keyboard-interactive"))
	return userAddress, ok && isPassword
}

// Bounds on the remembered tags of "Invalid user", since a log can have any number. A process logs the failure soon
// after "Invalid user", or never.
const (
	maxTags     = 4096 // tags of a generation
	maxTagBytes = 64   // length of a tag such as sshd[2967]
)

// rememberTag remembers the tag of a process that logged "Invalid user".
func (rd *sshdReader) rememberTag(tag []byte) {
	if len(tag) > maxTagBytes {
		return
	}
	if len(rd.invalidUserTags) >= maxTags {
		rd.invalidUserTags, rd.olderInvalidUserTags = map[string]bool{}, rd.invalidUserTags
	}
	rd.invalidUserTags[string(tag)] = true
}

// address returns the address before a port. Without a port the address may have been cut off; portOptional accepts a
// whole address without a port, which older servers write with "Invalid user".
func address(b []byte, portOptional bool) (addr []byte, ok bool) {
	addr, _, ok = bytes.Cut(b, []byte(" port "))
	if !ok && portOptional {
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
	v, isNumber := parseDigits(number)
	if !ok || !isNumber || len(number) > 9 || v < 1 || v > maxRepeats {
		return nil, 0, false
	}
	return bytes.TrimSuffix(inner, []byte{']'}), int(v), true
}

// readTime returns the time at the beginning of a line, and the rest of the line.
func (rd *sshdReader) readTime(line []byte) (us int64, rest []byte, err error) {
	if len(line) > 0 && isDigit(line[0]) {
		stamp, rest, _ := bytes.Cut(line, []byte{' '})
		us, ok := parseRFC3339(stamp)
		if !ok && bytes.IndexByte(stamp, '.') > 0 { // journalctl --output short-unix writes seconds
			us, ok = parseEpoch(stamp)
		}
		if ok {
			return us, rest, nil
		}
		return 0, nil, errSyslog
	}
	if !hasSyslogTime(line) {
		return 0, nil, errSyslog
	}
	timeIn := func(year int) (us int64, ok bool) {
		return parseTime("2006 "+time.Stamp, fmt.Sprintf("%04d %s", year, line[:15]), len("2006 Jan _2 15:04:"))
	}
	if _, ok := timeIn(2000); !ok { // a leap year has every date
		return 0, nil, errSyslog
	}
	year := rd.yearOf(1+bytes.Index(monthNames, line[:3])/3, timeIn)
	us, ok := timeIn(year)
	if !ok {
		return 0, nil, fmt.Errorf("%w: %s in %d", errLeapDay, line[:6], year)
	}
	return us, line[16:], nil
}

// hasSyslogTime reports whether a line seems to begin with a time of syslog: a month, a day and a time of day.
func hasSyslogTime(line []byte) bool {
	return len(line) > 15 && line[3] == ' ' && line[6] == ' ' && line[15] == ' ' && bytes.Contains(monthNames, line[:3])
}

// yearOf returns the year of a line of a month. Without Config.Year, the first line is of the year in which the log was
// last changed, or of the year before if it would lie in the future otherwise. When the month goes back, the next year
// has begun; but a line of the previous month is a late line. timeIn returns the time of the line in a year.
func (rd *sshdReader) yearOf(month int, timeIn func(year int) (us int64, ok bool)) int {
	if rd.year == 0 {
		rd.year = rd.changedAt.UTC().Year()
		if us, _ := timeIn(rd.year); us > rd.changedAt.UnixMicro()+dayMicros {
			rd.year--
		}
	}
	lastMonth := rd.month
	switch {
	case lastMonth == 0, month == lastMonth-1:
	case month < lastMonth:
		rd.year++
		rd.yearEnded = true
	case rd.yearEnded && lastMonth == 1 && month == 12:
		return rd.year - 1 // a late line of the old year
	}
	if lastMonth == 0 || month != lastMonth-1 {
		rd.month = month
	}
	return rd.year
}

// Notes implements Reader. The notes explain the number of requests.
func (rd *sshdReader) Notes() []string {
	if rd.secondLines == 0 && rd.repeatLines == 0 {
		return nil
	}
	attempts := rd.attemptLines - rd.secondLines - rd.repeatLines + rd.repeatedAttempts
	text := fmt.Sprintf("%s about failed passwords and invalid users", Plural(rd.attemptLines, "line"))
	if rd.secondLines > 0 {
		text += fmt.Sprintf(", of which %s %s a second line about the same attempt", Comma(rd.secondLines),
			verb(rd.secondLines, "is", "are"))
	}
	if rd.repeatLines > 0 {
		text += fmt.Sprintf(", %s %s for %s", Comma(rd.repeatLines), verb(rd.repeatLines, "stands", "stand"),
			Plural(rd.repeatedAttempts, "attempt"))
	}
	if rd.attempts {
		return []string{text + ": " + Plural(attempts, "attempt") + ", each a request"}
	}
	return []string{text + "; each line is a request (they are " + Plural(attempts, "attempt") + ")"}
}

// verb returns the form of a verb after a number.
func verb(n int64, singular, plural string) string {
	if n == 1 {
		return singular
	}
	return plural
}
