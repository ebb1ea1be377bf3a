package replay

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// cursor stands on an event of a run.
type cursor struct {
	request
	run  int // earlier runs come first at the same time
	wide bool
	r    *bufio.Reader
}

// next moves to the next event; false at the end.
func (c *cursor) next() (bool, error) {
	var b [wideSize]byte
	size := eventSize
	if c.wide {
		size = wideSize
	}
	switch _, err := io.ReadFull(c.r, b[:size]); err {
	case nil:
	case io.EOF:
		return false, nil
	default:
		return false, fmt.Errorf("replay: read a temporary file: %w", err)
	}
	c.at = int64(binary.LittleEndian.Uint64(b[:]))
	c.key = binary.LittleEndian.Uint32(b[8:])
	c.amounts = plain
	if c.wide {
		c.cost = int64(binary.LittleEndian.Uint64(b[12:]))
		c.used = int64(binary.LittleEndian.Uint64(b[20:]))
		c.end = int64(binary.LittleEndian.Uint64(b[28:]))
	}
	return true, nil
}

// merger is a heap of cursors, the one to come next at its top.
type merger struct {
	heap  []*cursor
	byKey bool
}

func (m *merger) less(i, j int) bool {
	a, b := m.heap[i], m.heap[j]
	if m.byKey && a.key != b.key {
		return a.key < b.key
	}
	return a.at < b.at || a.at == b.at && a.run < b.run
}

// push adds a cursor that stands before the first event of its run.
func (m *merger) push(c *cursor) error {
	ok, err := c.next()
	if !ok || err != nil {
		return err
	}
	m.heap = append(m.heap, c)
	h := m.heap
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !m.less(i, parent) {
			break
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
	return nil
}

// advance moves the cursor at the top.
func (m *merger) advance() error {
	h := m.heap
	ok, err := h[0].next()
	if err != nil {
		return err
	}
	if !ok {
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		m.heap = h
	}
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return nil
		}
		if child+1 < len(h) && m.less(child+1, child) {
			child++
		}
		if !m.less(child, i) {
			return nil
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
