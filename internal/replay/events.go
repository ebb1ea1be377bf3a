package replay

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
)

// event is one request: when, which key, and its place among those that are
// sorted with it.
type event struct {
	at       int64
	key, seq uint32
}

func byTime(a, b event) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
}

// eventSize is that of an event in a temporary file, without seq.
const eventSize = 12

// sorter sorts events stably by time: in memory as long as they fit, else as
// sorted runs in a temporary file that are merged while they are read.
type sorter struct {
	most   int
	dir    string
	buf    []event
	sorted bool // buf is
	total  int64
	file   *os.File
	name   string // of file, while it has to be removed
	w      *bufio.Writer
	size   int64
	runs   []run
}

// run is a part of the file that is sorted.
type run struct{ offset, length int64 }

func newSorter(most int, dir string) *sorter {
	return &sorter{most: max(most, 1), dir: dir, sorted: true}
}

func (s *sorter) add(at int64, key uint32) error {
	if len(s.buf) >= s.most {
		if err := s.spill(); err != nil {
			return err
		}
	}
	n := len(s.buf)
	s.sorted = s.sorted && (n == 0 || s.buf[n-1].at <= at)
	s.buf = append(s.buf, event{at, key, uint32(n)})
	s.total++
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
	s.buf = nil
	if err := s.w.Flush(); err != nil {
		return fmt.Errorf("replay: sort in a temporary file: %w", err)
	}
	return nil
}

func (s *sorter) sort() {
	if !s.sorted {
		slices.SortFunc(s.buf, byTime)
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
	var b [eventSize]byte
	for i := range s.buf {
		if err != nil {
			break
		}
		binary.LittleEndian.PutUint64(b[:], uint64(s.buf[i].at))
		binary.LittleEndian.PutUint32(b[8:], s.buf[i].key)
		_, err = s.w.Write(b[:])
	}
	if err != nil {
		return fmt.Errorf("replay: sort in a temporary file: %w", err)
	}
	length := int64(len(s.buf)) * eventSize
	s.runs = append(s.runs, run{s.size, length})
	s.size += length
	s.buf = s.buf[:0]
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

// span returns the first and the last time.
func (s *sorter) span(ctx context.Context) (first, last int64, err error) {
	if len(s.runs) == 0 {
		if len(s.buf) > 0 {
			first, last = s.buf[0].at, s.buf[len(s.buf)-1].at
		}
		return first, last, nil
	}
	var b [eventSize]byte
	for i, r := range s.runs {
		for _, offset := range []int64{r.offset, r.offset + r.length - eventSize} {
			if _, err := s.file.ReadAt(b[:], offset); err != nil {
				return 0, 0, fmt.Errorf("replay: sort in a temporary file: %w", err)
			}
			t := int64(binary.LittleEndian.Uint64(b[:]))
			if i == 0 && offset == r.offset {
				first, last = t, t
			}
			first, last = min(first, t), max(last, t)
		}
	}
	return first, last, ctx.Err()
}

// each calls f for all events in order, as often as it is called itself.
func (s *sorter) each(ctx context.Context, f func(at int64, key uint32) error) error {
	if len(s.runs) == 0 {
		for i, e := range s.buf {
			if i&0xfff == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := f(e.at, e.key); err != nil {
				return err
			}
		}
		return nil
	}
	m := merger{}
	for i, r := range s.runs {
		c := &cursor{run: i, r: bufio.NewReaderSize(io.NewSectionReader(s.file, r.offset, r.length), 1<<16)}
		if err := m.push(c); err != nil {
			return err
		}
	}
	for n := 0; len(m) > 0; n++ {
		if n&0xfff == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := f(m[0].at, m[0].key); err != nil {
			return err
		}
		if err := m.advance(); err != nil {
			return err
		}
	}
	return nil
}
