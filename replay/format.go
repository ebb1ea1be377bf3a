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
var Formats = []Format{Combined, Common, JSON, SSHD}

// record is what a line says.
type record struct {
	at    int64  // microseconds
	key   []byte // good until the line is
	count int    // how many requests it stands for; 0: none, skip it
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
	case Combined, Common:
		return newAccess(f, field)
	case JSON:
		return newObjects(field), nil
	case SSHD:
		return newAuth(field, cfg)
	}
	names := make([]string, len(Formats))
	for i, f := range Formats {
		names[i] = string(f)
	}
	return nil, fmt.Errorf("%w: format: %q is not one of %s", headgate.ErrInvalid, string(f), strings.Join(names, ", "))
}

// badField is the error about a field that a format does not have.
func badField(f Format, field, has string) error {
	return fmt.Errorf("%w: key: a %s log has no field %q, but %s", headgate.ErrInvalid, f, field, has)
}

// detect finds out the format from the first lines: the one that reads most
// of them, the earlier in Formats where several do.
func detect(head []byte, field string) (Format, error) {
	var (
		best     Format
		most     int
		sample   []byte
		tooSmall = true
	)
	for _, f := range Formats {
		// Any field will do to recognise a format.
		rd, err := newReader(f, "ip", readerConfig{year: 2000})
		if err != nil {
			return "", err
		}
		good := 0
		rest := head
		for n := 0; len(rest) > 0 && n < 50; n++ {
			var line []byte
			line, rest, _ = bytes.Cut(rest, []byte{'\n'})
			line = bytes.TrimSuffix(line, []byte{'\r'})
			if len(line) == 0 {
				continue
			}
			tooSmall = false
			if sample == nil {
				sample = line
			}
			if _, err := rd.read(line); err == nil || errors.Is(err, errNoField) {
				good++
			}
		}
		if good > most {
			best, most = f, good
		}
	}
	switch {
	case tooSmall:
		return "", ErrEmpty
	case best == "":
		return "", fmt.Errorf("%w: its first lines are in none of the formats combined, common, json, sshd; line 1 is %s", ErrUnreadable, quote(clip(sample)))
	}
	return best, nil
}

// errNoField: the line is as it should be and lacks the field.
var errNoField = errors.New("the field is not there")
