package replay

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate"
)

// Format is the way in which a log writes its lines.
type Format string

// The formats.
const (
	// Combined is the access log of Apache and nginx with referer and agent.
	Combined Format = "combined"
	// Common is the access log without them; what follows is not looked at.
	Common Format = "common"
	// VHost is Combined after the name and the port of a virtual host, as Debian's
	// Apache writes it: "example.com:80 192.0.2.1 - - [...". The port may be missing.
	// What follows the bytes is not looked at.
	VHost Format = "vhost_combined"
	// JSON is one object on each line. Its time is the first of ts, time,
	// timestamp and @timestamp: RFC 3339, or since the epoch in seconds,
	// milliseconds or finer. FIELD is a path such as request.ip or
	// headers.Host.0; the five plain fields are also found under the names
	// that Caddy, nginx and Traefik use.
	JSON Format = "json"
	// SSHD is the syslog of an SSH server. Each line "Failed password" or
	// "Invalid user" is a request, by ip or user; other lines are skipped.
	// With Config.Attempts, the first password that fails for an invalid user
	// is one attempt with the line that announced the user, and "message
	// repeated 5 times" is five. The times are taken as UTC.
	SSHD Format = "sshd"
)

// Formats lists the formats in the order in which they are tried.
var Formats = []Format{Combined, Common, VHost, JSON, SSHD}

// record is what a line says.
type record struct {
	at      int64  // microseconds
	key     []byte // good until the line is
	count   int    // how many requests it stands for; 0: none, skip it
	foreign bool   // it is another program's: that says nothing for the format
}

// reader reads the lines of one log, in order. An error says why a line
// cannot be read.
type reader interface {
	read(line []byte) (record, error)
}

type readerConfig struct {
	year     int       // of the first line, if it writes none; 0: by changed
	changed  time.Time // when the log was last written to
	attempts bool
}

// newReader returns a reader, or says why this format has no such field.
func newReader(f Format, field string, cfg readerConfig) (reader, error) {
	switch f {
	case Combined, Common, VHost:
		return newAccess(f, field)
	case JSON:
		return newObjects(field), nil
	case SSHD:
		return newAuth(field, cfg)
	}
	return nil, headgate.Invalid("format", "%q is not one of %s", string(f), formatNames())
}

func formatNames() string {
	names := make([]string, len(Formats))
	for i, f := range Formats {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// badField is the error about a field that a format does not have.
func badField(f Format, field, has string) error {
	return headgate.Invalid("key", "a %s log has no field %q, but %s", f, field, has)
}

// share counts the lines of a log that are of a format.
type share struct {
	good, bad int64
	first     *BadLine // the first that is not
}

// add counts one line by what its reader said.
func (s *share) add(rec record, err error) {
	switch {
	case errors.Is(err, errNoField), errors.Is(err, errNotPlain), errors.Is(err, errNotText):
		s.good++ // the line is as it should be; the field is another matter
	case err != nil:
		s.bad++
	case !rec.foreign:
		s.good++
	}
}

// recognised reports whether the log is of the format. A few broken lines are in
// many a log.
func (s share) recognised() bool { return s.good > 0 && s.good >= s.bad }

// detect finds out the format from the first lines: the one that reads most
// of them, the earlier in Formats where several do. It must read at least half.
func detect(head []byte) (Format, error) {
	var (
		best     Format
		most     int64
		sample   []byte
		tooSmall = true
	)
	for _, f := range Formats {
		// Any field will do to recognise a format.
		rd, err := newReader(f, "ip", readerConfig{year: 2000})
		if err != nil {
			return "", err
		}
		var of share
		for line := range bytes.Lines(head) {
			line = bytes.TrimRight(line, "\r\n")
			if len(line) == 0 {
				continue
			}
			tooSmall = false
			if sample == nil {
				sample = line
			}
			of.add(rd.read(line))
		}
		if of.recognised() && of.good > most {
			best, most = f, of.good
		}
	}
	switch {
	case tooSmall:
		return "", ErrEmpty
	case best == "":
		return "", fmt.Errorf("%w: the first lines are none of %s; line 1 is %s", ErrFormat, formatNames(),
			quote(clip(sample)))
	}
	return best, nil
}

// errNoField: the line is as it should be and lacks the field.
var errNoField = errors.New("the field is not there")
