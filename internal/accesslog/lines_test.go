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

// lines reads the lines of a log.
func lines(log []byte) (found []string, err error) {
	l, err := accesslog.NewLines(bytes.NewReader(log), 0)
	if err != nil {
		return nil, err
	}
	for {
		line, err := l.Next()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, err
		}
		found = append(found, string(line))
	}
}

func TestPackedLogsAreRead(t *testing.T) {
	t.Parallel()
	const log = "one\ntwo\nthree\n"
	var zipped, zst bytes.Buffer
	z := gzip.NewWriter(&zipped)
	s, err := zstd.NewWriter(&zst)
	for _, err := range []error{
		err, errOf(io.WriteString(z, log)), z.Close(), errOf(io.WriteString(s, log)), s.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, packed := range map[string][]byte{
		"plain": []byte(log), "gzip": zipped.Bytes(), "zstd": zst.Bytes(),
		"two frames of zstd": append(bytes.Clone(zst.Bytes()), zst.Bytes()...),
	} {
		want := strings.Split(strings.TrimSpace(log), "\n")
		if strings.HasPrefix(name, "two") {
			want = append(want, want...)
		}
		if got, err := lines(packed); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func errOf(_ int, err error) error { return err }

// TestAWindowOfZstdIsBounded reads frames whose headers ask for some memory (RFC 8878, 3.1.1.1.2), with one raw block.
func TestAWindowOfZstdIsBounded(t *testing.T) {
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
		got, err := lines(frame)
		if !errors.Is(err, c.want) || c.want == nil && !slices.Equal(got, []string{"one"}) {
			t.Errorf("%s: %q, %v; want %v", c.name, got, err, c.want)
		}
	}
}
