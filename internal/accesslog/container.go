package accesslog

import (
	"bytes"
	"errors"
)

// containerLog reads a program's log, whose lines may be wrapped in the lines of its container's log:
//
//	2016-10-06T00:17:09.669794202Z stdout F LINE                             of containerd and CRI-O
//	{"log":"LINE\n","stream":"stdout","time":"2014-08-14T20:17:09.669Z"}     of Docker's json-file
type containerLog struct {
	Reader
	cut [2]bool // of stdout and stderr: whether the latest line continues in the next one
}

var errPart = errors.New("is a part of a line that its container's log has cut")

// Read implements Reader.
func (c *containerLog) Read(line []byte) (Record, error) {
	inner, stream, whole, ok := unwrapContainer(line)
	if !ok {
		return c.Reader.Read(line)
	}
	n := 0
	if stream == "stderr" {
		n = 1
	}
	continued := c.cut[n]
	if c.cut[n] = !whole; continued || !whole {
		return Record{}, errPart
	}
	return c.Reader.Read(inner)
}

// unwrapContainer returns the program's line within a line of a container's log, and whether it is a whole line.
func unwrapContainer(line []byte) (inner []byte, stream string, whole, ok bool) {
	if bytes.HasPrefix(line, []byte(`{"log":"`)) {
		doc, err := parseObject(line)
		log, from, time := doc.lookup("log"), doc.lookup("stream"), doc.lookup("time")
		if err != nil || log == nil || from == nil || time == nil || isInvalidText(log) {
			return nil, "", false, false
		}
		inner, whole = bytes.CutSuffix(decodeText(log), []byte{'\n'})
		return bytes.TrimSuffix(inner, []byte{'\r'}), string(decodeText(from)), whole, true
	}
	stamp, rest, _ := bytes.Cut(line, []byte{' '})
	for _, stream = range []string{"stdout", "stderr"} {
		after, found := bytes.CutPrefix(rest, []byte(stream+" "))
		if !found {
			continue
		}
		_, isTime := rfc3339(stamp)
		tags, inner, found := bytes.Cut(after, []byte{' '})
		tag, _, _ := bytes.Cut(tags, []byte{':'})
		whole = string(tag) == "F"
		return inner, stream, whole, isTime && found && (whole || string(tag) == "P")
	}
	return nil, "", false, false
}
