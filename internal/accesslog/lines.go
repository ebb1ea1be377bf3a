package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// maxLine is the most bytes of a line that can be read.
const maxLine = 1 << 20

// ErrLong is the error of a line that is too long to be read.
var ErrLong = errors.New("the line is longer than 1 MiB")

// ErrLarge is the error of a log that is larger than the caller's bound.
var ErrLarge = errors.New("the log is too large")

// Lines splits a log into its lines, unpacking gzip and zstd.
type Lines struct {
	b     *bufio.Reader
	bytes *counter
	left  int64 // bytes of unpacked lines that may still be read
	start bool  // nothing read yet
}

// counter counts the bytes that are read of the source, which may be packed.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// unsupported has the first bytes of files of compressions that are not supported.
var unsupported = map[string]string{"xz": "\xfd7zXZ\x00", "bzip2": "BZh91A"}

// zstdWindow bounds the memory that a log packed with zstd can take. RFC 8878 requires every reader to support windows
// of 8 MiB, and the zstd command makes larger ones only with --long and --ultra.
const zstdWindow = 8 << 20

// NewLines returns the lines of a log, which may be packed with gzip or zstd. If maxBytes is above 0, more than
// maxBytes of unpacked lines are ErrLarge.
func NewLines(r io.Reader, maxBytes int64) (*Lines, error) {
	l := &Lines{bytes: &counter{r: r}, left: maxBytes, start: true}
	if maxBytes <= 0 {
		l.left = math.MaxInt64
	}
	raw := bufio.NewReaderSize(l.bytes, 64<<10)
	var text io.Reader = raw
	magic, _ := raw.Peek(6)
	for tool, begin := range unsupported {
		if bytes.HasPrefix(magic, []byte(begin)) {
			return nil, fmt.Errorf("the log is packed with %s: unpack it first", tool)
		}
	}
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		text, err = gzip.NewReader(raw)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		text, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
	}
	if err != nil {
		return nil, err
	}
	l.b = bufio.NewReaderSize(text, maxLine)
	return l, nil
}

// slice returns the rest of a line, or as much of it as the buffer holds.
func (l *Lines) slice() ([]byte, error) {
	b, err := l.b.ReadSlice('\n')
	if l.left -= int64(len(b)); l.left < 0 {
		return nil, ErrLarge
	}
	return b, err
}

// Peek returns the first lines, up to 64 KiB, without consuming them.
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

// Next returns the next line without its line break. The line is valid until the following call. The error is io.EOF
// at the end of the log, ErrLong with the beginning of a line that is too long, or an error of the source.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.slice()
	long := errors.Is(err, bufio.ErrBufferFull)
	if long {
		line = bytes.Clone(line[:maxShown])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.slice()
		}
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
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

// BytesRead returns how many bytes of the source, packed or not, have been read.
func (l *Lines) BytesRead() int64 { return l.bytes.n }

// maxShown is how many bytes of a line are kept for messages.
const maxShown = 300

// Clip returns a line, or the beginning of a long one, for a message.
func Clip(line []byte) string {
	if len(line) <= maxShown {
		return string(line)
	}
	return string(bytes.ToValidUTF8(line[:maxShown], nil)) + "..."
}
