package accesslog

import (
	"bytes"
	"errors"
)

// containerLog reads what a program in a container has logged, as it is, or in the lines of the container's log:
//
//	2016-10-06T00:17:09.669794202Z stdout F LINE                             of containerd and CRI-O
//	{"log":"LINE\n","stream":"stdout","time":"2014-08-14T20:17:09.669Z"}     of Docker's json-file
type containerLog struct {
	Reader
	cut [2]bool // of stdout and of stderr: the latest line goes on in the next one
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
	before := c.cut[n]
	if c.cut[n] = !whole; before || !whole {
		return Record{}, errPart
	}
	return c.Reader.Read(inner)
}

// unwrapContainer returns the line within one of a container's log, and whether it is a whole one.
func unwrapContainer(line []byte) (inner []byte, stream string, whole, ok bool) {
	if bytes.HasPrefix(line, []byte(`{"log":"`)) {
		doc, err := parseObject(line)
		log, from, time := doc.lookup("log"), doc.lookup("stream"), doc.lookup("time")
		if err != nil || log == nil || from == nil || time == nil || lonely(log) {
			return nil, "", false, false
		}
		inner, whole = bytes.CutSuffix(text(log), []byte{'\n'})
		return bytes.TrimSuffix(inner, []byte{'\r'}), string(text(from)), whole, true
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
