package check_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/headgate/headgate/internal/testing/history"
	"github.com/headgate/headgate/internal/testing/sim/check"
)

// FuzzCheck checks that the checker gets along with every history, and with what is none.
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
		h := &history.History{}
		for line := range bytes.Lines(text) {
			var e history.Event
			if json.Unmarshal(line, &e) == nil {
				h.Events = append(h.Events, e)
			}
		}
		check.Check(h)
	})
}
