package check_test

import (
	"bytes"
	"testing"

	"github.com/headgate/headgate/internal/history"
	"github.com/headgate/headgate/internal/sim/check"
)

// FuzzCheck checks that the checker gets along with every history that can be read.
func FuzzCheck(f *testing.F) {
	for _, cases := range [][]tampered{boundCases, levelCases, otherCases, overrideCases} {
		for _, c := range cases {
			b, _ := c.build()
			var text bytes.Buffer
			if err := b.h.Write(&text); err != nil {
				f.Fatal(c.name, err)
			}
			f.Add(text.Bytes())
		}
	}
	f.Fuzz(func(_ *testing.T, text []byte) {
		if h, err := history.Read(bytes.NewReader(text)); err == nil {
			check.Check(h)
		}
	})
}
