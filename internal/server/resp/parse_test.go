package resp

import (
	"bytes"
	"testing"
)

// FuzzParse checks that a command lies within its input, is incomplete without its end, and ends before the next one.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"PING\r\n", "*1\r\n$4\r\nPING\r\n", "*2\r\n$0\r\n\r\n$3\r\na\r\n\r\n", "*0\r\n", "*-1\r\n", "*1\r\n$-1\r\n", "*99999999999\r\n",
		"$1\r\n", "\r\n", "*1\r\n$4\r\nPIN", "*\r\n", "*1\r\n$\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		words, size, err := parse(b)
		if size < 0 || size > len(b) || err != nil && (size != 0 || words != nil) || len(words) > maxArgs {
			t.Fatalf("%d words, %d bytes, %v", len(words), size, err)
		}
		for cut := range min(size, 64) {
			partial, n, err := parse(b[:cut])
			if err != nil || n != 0 || partial != nil {
				t.Fatalf("the first %d bytes of %d: %q, %d, %v", cut, size, partial, n, err)
			}
		}
		reparsed, n, err := parse(append(bytes.Clone(b[:size]), "*1\r\n$4\r\nPING\r\n"...))
		if size > 0 && (n != size || err != nil || len(reparsed) != len(words)) {
			t.Fatalf("before another command: %q, %d, %v; alone: %q, %d", reparsed, n, err, words, size)
		}
	})
}
