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

// Writer writes events as lines. It is not safe for concurrent use.
type Writer struct {
	w    *bufio.Writer
	last int64
}

// NewWriter returns a Writer that writes to w. Flush writes what it holds back.
func NewWriter(w io.Writer) *Writer { return &Writer{w: bufio.NewWriter(w)} }

// Write writes one event. One that is not valid, or goes back in time, is an error, and
// nothing of it is written.
func (w *Writer) Write(e *Event) error {
	if err := e.Valid(); err != nil {
		return err
	}
	if e.T < w.last {
		return fmt.Errorf("t: %d is before %d", e.T, w.last)
	}
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	w.last = e.T
	_, err = w.w.Write(append(line, '\n'))
	return err
}

// Flush writes out what is held back.
func (w *Writer) Flush() error { return w.w.Flush() }

// Write writes a whole history.
func (h *History) Write(to io.Writer) error {
	w := NewWriter(to)
	for i := range h.Events {
		if err := w.Write(&h.Events[i]); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
	}
	return w.Flush()
}

// Read reads a history to its end. It is strict: fields that are not known, events that
// are not valid, empty lines and times that go back are errors, which name the line.
func Read(from io.Reader) (*History, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	h, last := &History{}, int64(0)
	for lines.Scan() {
		e, err := parse(lines.Bytes())
		if err == nil && e.T < last {
			err = fmt.Errorf("t: %d is before %d", e.T, last)
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
	return e, e.Valid()
}
