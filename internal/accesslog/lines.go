package accesslog

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

const maxLine = 1 << 20

// ErrLong is the error of a line that is too long to be read.
var ErrLong = errors.New("the line is longer than 1 MiB")

// ErrLarge is the error of a log that is larger than the caller's bound.
var ErrLarge = errors.New("the log is too large")

// Lines splits a log into its lines, unpacking gzip and zstd.
type Lines struct {
	reader    *bufio.Reader
	source    *byteCounter
	bytesLeft int64 // bytes of unpacked lines that may still be read
	atStart   bool  // no line was read yet
}

// byteCounter counts the bytes that are read from the source, which may be packed.
type byteCounter struct {
	r io.Reader
	n int64
}

func (c *byteCounter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// zstdWindow bounds the memory that a log packed with zstd can take. RFC 8878 recommends that readers support windows
// of 8 MiB, and the zstd command makes larger ones only with --long and --ultra.
const zstdWindow = 8 << 20

// NewLines returns the lines of a log, packed or not. More unpacked bytes than maxBytes, if above 0, are ErrLarge.
func NewLines(r io.Reader, maxBytes int64) (*Lines, error) {
	l := &Lines{source: &byteCounter{r: r}, bytesLeft: maxBytes, atStart: true}
	if maxBytes <= 0 {
		l.bytesLeft = math.MaxInt64
	}
	raw := bufio.NewReaderSize(l.source, 64<<10)
	var text io.Reader = raw
	magic, _ := raw.Peek(6)
	var err error
	switch {
	case bytes.HasPrefix(magic, []byte("\xfd7zXZ\x00")):
		err = errors.New("the log is packed with xz: unpack it first")
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		text, err = gzip.NewReader(raw)
	case bytes.HasPrefix(magic, []byte("BZh")) && bytes.HasSuffix(magic, []byte("1A")): // in between the level
		text = bzip2.NewReader(raw)
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		text, err = zstd.NewReader(raw, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow))
	}
	if err != nil {
		return nil, err
	}
	l.reader = bufio.NewReaderSize(text, maxLine)
	return l, nil
}

// readSlice reads up to the end of a line, or as much of the line as the buffer holds.
func (l *Lines) readSlice() ([]byte, error) {
	b, err := l.reader.ReadSlice('\n')
	if l.bytesLeft -= int64(len(b)); l.bytesLeft < 0 {
		return nil, ErrLarge
	}
	return b, err
}

// Peek returns the first whole lines, up to 64 KiB, without consuming them. Call it before Next.
func (l *Lines) Peek() []byte {
	b, err := l.reader.Peek(64 << 10)
	if err == nil {
		// The last line is cut: leave it out, unless it is all there is.
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			b = b[:i+1]
		}
	}
	return bytes.TrimPrefix(b, bom)
}

var bom = []byte("\xef\xbb\xbf") // the byte order mark of UTF-8

// Next returns the next line without its line break. The line is valid until the following call. The error is io.EOF
// at the end of the log, ErrLong with the beginning of a line that is too long, ErrLarge, or an error of the source.
func (l *Lines) Next() ([]byte, error) {
	line, err := l.readSlice()
	isLong := false
	if errors.Is(err, bufio.ErrBufferFull) {
		isLong = true
		line = bytes.Clone(line[:maxClip])
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = l.readSlice()
		}
	}
	if err != nil && (!errors.Is(err, io.EOF) || len(line) == 0) {
		return nil, err
	}
	if l.atStart {
		line = bytes.TrimPrefix(line, bom)
		l.atStart = false
	}
	if isLong {
		return line, ErrLong
	}
	line = bytes.TrimSuffix(line, []byte{'\n'})
	return bytes.TrimSuffix(line, []byte{'\r'}), nil
}

// BytesRead returns how many bytes of the source, packed or not, have been read.
func (l *Lines) BytesRead() int64 { return l.source.n }

// maxClip is how many bytes of a line are kept for messages.
const maxClip = 300

// Clip returns a line, or the beginning of a long one, for a message.
func Clip(line []byte) string {
	if len(line) <= maxClip {
		return string(line)
	}
	return string(bytes.ToValidUTF8(line[:maxClip], nil)) + "..."
}
