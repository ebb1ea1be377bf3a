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
	continues [2]bool // whether the latest line of stdout, and of stderr, continues in the next line
}

var errCutLine = errors.New("is a part of a line that its container's log has cut")

func (c *containerLog) Read(line []byte) (Record, error) {
	inner, stream, isWhole, ok := unwrapContainer(line)
	if !ok {
		return c.Reader.Read(line)
	}
	index := 0
	if stream == "stderr" {
		index = 1
	}
	isContinuation := c.continues[index]
	if c.continues[index] = !isWhole; isContinuation || !isWhole {
		return Record{}, errCutLine
	}
	return c.Reader.Read(inner)
}

// unwrapContainer returns the program's line within a line of a container's log, its stream, and whether it is whole.
// ok is false if the line is not one of a container's log.
func unwrapContainer(line []byte) (inner []byte, stream string, isWhole, ok bool) {
	if bytes.HasPrefix(line, []byte(`{"log":"`)) {
		doc, err := parseObject(line)
		log, streamName, timeValue := doc.lookup("log"), doc.lookup("stream"), doc.lookup("time")
		if err != nil || log == nil || streamName == nil || timeValue == nil || isInvalidText(log) {
			return nil, "", false, false
		}
		inner, isWhole = bytes.CutSuffix(decodeText(log), []byte{'\n'})
		return bytes.TrimSuffix(inner, []byte{'\r'}), string(decodeText(streamName)), isWhole, true
	}
	stamp, rest, _ := bytes.Cut(line, []byte{' '})
	for _, stream = range []string{"stdout", "stderr"} {
		tagged, found := bytes.CutPrefix(rest, []byte(stream+" "))
		if !found {
			continue
		}
		_, isTime := parseRFC3339(stamp)
		tags, inner, found := bytes.Cut(tagged, []byte{' '})
		tag, _, _ := bytes.Cut(tags, []byte{':'})
		isWhole = string(tag) == "F"
		return inner, stream, isWhole, isTime && found && (isWhole || string(tag) == "P")
	}
	return nil, "", false, false
}
