package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
)

// maxLine is the longest line that is read.
const maxLine = 1 << 20

// ErrLong is the error of a line that is too long to be read.
var ErrLong = errors.New("the line is longer than 1 MiB")

// Lines splits a log into its lines, unpacking gzip.
type Lines struct {
	b     *bufio.Reader
	bytes *counter
	start bool // nothing read yet
}

// counter counts the bytes of the source as it lies on the disk.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// NewLines returns the lines of a log, which may be packed with gzip.
func NewLines(r io.Reader) (*Lines, error) {
	l := &Lines{bytes: &counter{r: r}, start: true}
	l.b = bufio.NewReaderSize(l.bytes, maxLine)
	if magic, _ := l.b.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(l.b)
		if err != nil {
			return nil, err
		}
		l.b = bufio.NewReaderSize(z, maxLine)
	}
	return l, nil
}

// Peek returns some of the first lines, without consuming them.
func (l *Lines) Peek() []byte {
	b, err := l.b.Peek(64 << 10)
	if err == nil {
		// The last line is cut: leave it out, unless it is all there is.
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			b = b[:i+1]
		}
	}
	return bytes.TrimPrefix(b, bom)
}

var bom = []byte("\xef\xbb\xbf")

// Next returns the next line without its end; it is good until the following
// call. The error is io.EOF at the end, ErrLong with the beginning of a line
// that is too long, or that of the source.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.b.ReadSlice('\n')
	long := false
	if errors.Is(err, bufio.ErrBufferFull) {
		long = true
		line = bytes.Clone(line[:maxShown])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.b.ReadSlice('\n')
		}
	}
	if err != nil && (err != io.EOF || len(line) == 0) {
		return nil, err
	}
	if l.start {
		line = bytes.TrimPrefix(line, bom)
		l.start = false
	}
	if long {
		return line, ErrLong
	}
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// BytesRead returns how much of the source has been read.
func (l *Lines) BytesRead() int64 { return l.bytes.n }

// maxShown is how much of a line is kept to be shown.
const maxShown = 300

// Clip returns a line, or its beginning, to be shown.
func Clip(line []byte) string {
	if len(line) <= maxShown {
		return string(line)
	}
	return string(bytes.ToValidUTF8(slices.Clone(line[:maxShown]), nil)) + "..."
}
