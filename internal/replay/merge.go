package replay

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// cursor stands on a request of a run.
type cursor struct {
	request
	run  uint32 // earlier runs come first at the same time
	size int64  // of a request in the run
	r    *bufio.Reader
}

// event is the request, in its place among those of other runs.
func (c *cursor) event() event { return event{c.at, c.key, c.run} }

// next moves to the next request; the error is io.EOF at the end.
func (c *cursor) next() error {
	var b [wideSize]byte
	if _, err := io.ReadFull(c.r, b[:c.size]); err != nil {
		return fmt.Errorf("replay: read a temporary file: %w", err)
	}
	c.at = int64(binary.LittleEndian.Uint64(b[:]))
	c.key = binary.LittleEndian.Uint32(b[8:])
	c.amounts = plain
	if c.size == wideSize {
		c.cost = int64(binary.LittleEndian.Uint64(b[12:]))
		c.used = int64(binary.LittleEndian.Uint64(b[20:]))
		c.end = int64(binary.LittleEndian.Uint64(b[28:]))
	}
	return nil
}

// queue is a heap of package container/heap: the least of its list is at its top.
type queue[T any] struct {
	list []T
	less func(a, b T) bool
}

// Len implements [heap.Interface].
func (q *queue[T]) Len() int { return len(q.list) }

// Less implements [heap.Interface].
func (q *queue[T]) Less(i, j int) bool { return q.less(q.list[i], q.list[j]) }

// Swap implements [heap.Interface].
func (q *queue[T]) Swap(i, j int) { q.list[i], q.list[j] = q.list[j], q.list[i] }

// Push implements [heap.Interface].
func (q *queue[T]) Push(x any) { q.list = append(q.list, x.(T)) }

// Pop implements [heap.Interface].
func (q *queue[T]) Pop() any {
	last := len(q.list) - 1
	x := q.list[last]
	q.list = q.list[:last]
	return x
}
