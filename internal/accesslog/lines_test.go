package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headgate/headgate/internal/accesslog"
)

// readLines returns the lines of a log, which may be packed.
func readLines(log []byte) (lines []string, err error) {
	l, err := accesslog.NewLines(bytes.NewReader(log), 0)
	if err != nil {
		return nil, err
	}
	for {
		line, err := l.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

func TestLinesUnpacksGzipBzip2AndZstd(t *testing.T) {
	t.Parallel()
	const log = "one\ntwo\nthree\n"
	// What bzip2 makes of log at level 1; at level 9 only the fourth byte differs.
	const bzip2Log = "BZh11AY\x26SY\x08\x7b\x7d\xd7\x00\x00\x04\xc1\x80\x00\x10\x02A\x94\x80\x20\x001\x0c\x08\x21\xa3\xd4\xc8\x85G28\xa8\xf1w\x24S\x85\x09\x00\x87\xb7\xddp"
	var gzipLog, zstdLog bytes.Buffer
	gz := gzip.NewWriter(&gzipLog)
	zs, err := zstd.NewWriter(&zstdLog)
	for _, err := range []error{
		err, errorOf(io.WriteString(gz, log)), gz.Close(), errorOf(io.WriteString(zs, log)), zs.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, data := range map[string][]byte{
		"plain": []byte(log), "gzip": gzipLog.Bytes(), "zstd": zstdLog.Bytes(),
		"bzip2 -1": []byte(bzip2Log), "bzip2 -9": []byte("BZh9" + bzip2Log[4:]),
		"two frames of zstd": append(bytes.Clone(zstdLog.Bytes()), zstdLog.Bytes()...),
	} {
		want := strings.Split(strings.TrimSpace(log), "\n")
		if strings.HasPrefix(name, "two") {
			want = append(want, want...)
		}
		if got, err := readLines(data); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, error %v; want %q", name, got, err, want)
		}
	}
}

func errorOf(_ int, err error) error { return err }

// TestLinesBoundsTheWindowOfZstd reads frames with windows of several sizes (RFC 8878, 3.1.1.1.2) and one raw block.
func TestLinesBoundsTheWindowOfZstd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		window byte // exponent in the upper five bits: 2^(10+exponent) bytes
		want   error
	}{
		{"1 MiB", 10 << 3, nil},
		{"8 MiB", 13 << 3, nil},
		{"16 MiB", 14 << 3, zstd.ErrWindowSizeExceeded},
		{"2 GiB", 21 << 3, zstd.ErrWindowSizeExceeded},
	} {
		frame := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, c.window, 4<<3 | 1, 0, 0}, "one\n"...)
		got, err := readLines(frame)
		if !errors.Is(err, c.want) || c.want == nil && !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s: got %q, error %v; want error %v", c.name, got, err, c.want)
		}
	}
}
