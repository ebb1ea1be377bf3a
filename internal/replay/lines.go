package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// maxLine is the longest line that is read.
const maxLine = 1 << 20

var errLong = errors.New("the line is longer than 1 MiB")

// lines splits a log into its lines, unpacking gzip.
type lines struct {
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

func newLines(r io.Reader) (*lines, error) {
	l := &lines{bytes: &counter{r: r}, start: true}
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

// peek returns some of the first lines, without consuming them.
func (l *lines) peek() []byte {
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

// next returns the next line without its end; it is good until the following
// call. The error is io.EOF at the end, errLong with the beginning of a line
// that is too long, or that of the source.
func (l *lines) next() ([]byte, error) {
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
		return line, errLong
	}
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// bytesRead returns how much of the source has been read.
func (l *lines) bytesRead() int64 { return l.bytes.n }
