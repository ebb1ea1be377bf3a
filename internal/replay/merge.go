package replay

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// cursor stands on an event of a run.
type cursor struct {
	at  int64
	key uint32
	run int // earlier runs come first at the same time
	r   *bufio.Reader
}

// next moves to the next event; false at the end.
func (c *cursor) next() (bool, error) {
	var b [eventSize]byte
	switch _, err := io.ReadFull(c.r, b[:]); err {
	case nil:
	case io.EOF:
		return false, nil
	default:
		return false, fmt.Errorf("replay: read a temporary file: %w", err)
	}
	c.at = int64(binary.LittleEndian.Uint64(b[:]))
	c.key = binary.LittleEndian.Uint32(b[8:])
	return true, nil
}

// merger is a heap of cursors, the one to come next at its top.
type merger []*cursor

func (m merger) less(i, j int) bool {
	return m[i].at < m[j].at || m[i].at == m[j].at && m[i].run < m[j].run
}

// push adds a cursor that stands before the first event of its run.
func (m *merger) push(c *cursor) error {
	ok, err := c.next()
	if !ok || err != nil {
		return err
	}
	*m = append(*m, c)
	h := *m
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	return nil
}

// advance moves the cursor at the top.
func (m *merger) advance() error {
	h := *m
	ok, err := h[0].next()
	if err != nil {
		return err
	}
	if !ok {
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		*m = h
	}
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return nil
		}
		if child+1 < len(h) && h.less(child+1, child) {
			child++
		}
		if !h.less(child, i) {
			return nil
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
