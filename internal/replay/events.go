package replay

import (
	"bufio"
	"cmp"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// event is one request: when, which key, and its place among those that are
// sorted with it.
type event struct {
	at       int64
	key, seq uint32
}

// request is an event with what it costs.
type request struct {
	at  int64
	key uint32
	amounts
}

// amounts are what a request costs, in millionths: at first and, of what is settled, in the end.
type amounts struct {
	cost, used int64
	end        int64 // when it is settled, in microseconds; 0: never
}

// plain are the amounts of a request that costs one.
var plain = amounts{cost: million}

// The size of an event in a temporary file, without seq: alone, and with its amounts.
const (
	eventSize = 12
	wideSize  = eventSize + 24
)

// sorter sorts events stably by time, or by key and then by time: in memory as long as they fit, else as
// sorted runs in a temporary file that are merged while they are read.
type sorter struct {
	most   int
	dir    string
	byKey  bool
	wide   bool // events from here on have amounts
	buf    []event
	costs  []amounts // by seq, if wide
	sorted bool      // buf is
	first  int64     // the times of all events
	last   int64
	file   *os.File
	name   string // of file, while it has to be removed
	w      *bufio.Writer
	length int64 // of file
	runs   []run
}

// run is a part of the file that is sorted.
type run struct {
	offset, length int64
	wide           bool
}

func (r run) size() int64 {
	if r.wide {
		return wideSize
	}
	return eventSize
}

func newSorter(most int, dir string) *sorter {
	return &sorter{most: max(most, 1), dir: dir, sorted: true, first: math.MaxInt64}
}

// compare compares two events, at last by their places.
func (s *sorter) compare(a, b event) int {
	if s.byKey {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	}
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
}

func (s *sorter) add(r request) error {
	if len(s.buf) >= s.most {
		if err := s.spill(); err != nil {
			return err
		}
	}
	n := len(s.buf)
	if r.amounts != plain && !s.wide {
		s.wide, s.costs = true, slices.Repeat([]amounts{plain}, n)
	}
	e := event{r.at, r.key, uint32(n)}
	s.sorted = s.sorted && (n == 0 || s.compare(s.buf[n-1], e) <= 0)
	s.buf = append(s.buf, e)
	if s.wide {
		s.costs = append(s.costs, r.amounts)
	}
	s.first, s.last = min(s.first, r.at), max(s.last, r.at)
	return nil
}

// finish is called when all events are added.
func (s *sorter) finish() error {
	if len(s.runs) == 0 {
		s.sort()
		return nil
	}
	if err := s.spill(); err != nil {
		return err
	}
	s.buf, s.costs = nil, nil
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("replay: sort in a temporary file: %w", err)
	}
	return nil
}

func (s *sorter) sort() {
	if !s.sorted {
		slices.SortFunc(s.buf, s.compare)
		s.sorted = true
	}
}

// spill writes what is in memory as a sorted run.
func (s *sorter) spill() error {
	if len(s.buf) == 0 {
		return nil
	}
	s.sort()
	err := s.create()
	size := run{wide: s.wide}.size()
	var b [wideSize]byte
	for i := range s.buf {
		if err != nil {
			break
		}
		binary.LittleEndian.PutUint64(b[:], uint64(s.buf[i].at))
		binary.LittleEndian.PutUint32(b[8:], s.buf[i].key)
		if s.wide {
			c := &s.costs[s.buf[i].seq]
			binary.LittleEndian.PutUint64(b[12:], uint64(c.cost))
			binary.LittleEndian.PutUint64(b[20:], uint64(c.used))
			binary.LittleEndian.PutUint64(b[28:], uint64(c.end))
		}
		_, err = s.w.Write(b[:size])
	}
	if err != nil {
		return fmt.Errorf("replay: sort in a temporary file: %w", err)
	}
	length := int64(len(s.buf)) * size
	s.runs = append(s.runs, run{s.length, length, s.wide})
	s.length += length
	s.buf, s.costs, s.sorted = s.buf[:0], s.costs[:0], true
	return nil
}

// create opens the temporary file. Where the system lets it, the file is
// removed at once: it then goes with the process, whatever ends that.
func (s *sorter) create() error {
	if s.file != nil {
		return nil
	}
	f, err := os.CreateTemp(s.dir, "headgate-replay-*")
	if err != nil {
		return err
	}
	s.file, s.w = f, bufio.NewWriterSize(f, 1<<20)
	if os.Remove(f.Name()) != nil {
		s.name = f.Name()
	}
	return nil
}

// close removes the temporary file.
func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
		if s.name != "" {
			os.Remove(s.name)
		}
		s.file = nil
	}
}

// each calls f for all events in order, as often as it is called itself.
func (s *sorter) each(ctx context.Context, f func(r *request) error) error {
	if len(s.runs) == 0 {
		for i, e := range s.buf {
			if i&0xfff == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			r := request{e.at, e.key, plain}
			if s.wide {
				r.amounts = s.costs[e.seq]
			}
			if err := f(&r); err != nil {
				return err
			}
		}
		return nil
	}
	next := queue[*cursor]{less: func(a, b *cursor) bool { return s.compare(a.event(), b.event()) < 0 }}
	for i, r := range s.runs {
		section := io.NewSectionReader(s.file, r.offset, r.length)
		c := &cursor{run: uint32(i), size: r.size(), r: bufio.NewReaderSize(section, 1<<16)}
		if err := c.next(); err != nil {
			return err
		}
		heap.Push(&next, c)
	}
	for n := 0; next.Len() > 0; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		c := next.list[0]
		if err := f(&c.request); err != nil {
			return err
		}
		switch err := c.next(); {
		case err == nil:
			heap.Fix(&next, 0)
		case errors.Is(err, io.EOF):
			heap.Pop(&next)
		default:
			return err
		}
	}
	return nil
}
