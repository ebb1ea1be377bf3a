package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine is how long a line may be, in bytes.
const maxLine = 4 << 20

// Write writes a whole history. An event that is not valid, or goes back in time, is an error.
func (h *History) Write(to io.Writer) error {
	lines, last := bufio.NewWriter(to), int64(0)
	write := json.NewEncoder(lines)
	for i := range h.Events {
		e := &h.Events[i]
		err := e.follows(last)
		if err == nil {
			err = write.Encode(e)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		last = e.T
	}
	return lines.Flush()
}

// Read reads a history to its end. It is strict: fields that are not known, events that
// are not valid, empty lines and times that go back are errors, which name the line.
func Read(from io.Reader) (*History, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	h, last := &History{}, int64(0)
	for lines.Scan() {
		e, err := parse(lines.Bytes())
		if err == nil {
			err = e.follows(last)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(h.Events)+1, err)
		}
		last = e.T
		h.Events = append(h.Events, e)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", len(h.Events)+1, err)
	}
	return h, nil
}

func parse(line []byte) (e Event, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err = d.Decode(&e); err != nil {
		return e, err
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return e, errors.New("more than one object")
	}
	return e, nil
}

// follows says what is wrong with an event after one of a time; nil if nothing is.
func (e *Event) follows(last int64) error {
	if e.T < last {
		return fmt.Errorf("t: %d is before %d", e.T, last)
	}
	return e.Valid()
}
