package headgate_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

var update = flag.Bool("update", false, "rewrite testdata/notations.golden")

// TestNotationsMatchTheGoldenFile compares the parser and compiler with the golden file against which the copies in SQL
// are tested too. Each line is the input, then the canonical notation and the parameters of the law (law, anchor, unit,
// capacity, step, drain, block, history), or "error", the byte offset and the field.
func TestNotationsMatchTheGoldenFile(t *testing.T) {
	const golden = "testdata/notations.golden"
	input, err := os.ReadFile("testdata/notations.txt")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for line := range strings.Lines(string(input)) {
		b.WriteString(describeNotation(strings.TrimSuffix(line, "\n")) + "\n")
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(b.String(), "\n")
	for i, line := range strings.Split(string(want), "\n") {
		if i >= len(got) || got[i] != line {
			t.Errorf("line %d:\n got %q\nwant %q", i+1, got[min(i, len(got)-1)], line)
		}
	}
}

// describeNotation returns the line of the golden file for a notation.
func describeNotation(notation string) string {
	l, err := headgate.Parse(notation)
	if err != nil {
		offset, field := 0, "limit"
		if e, ok := errors.AsType[*headgate.ParseError](err); ok {
			offset, field = e.Offset, e.Field
		}
		return fmt.Sprintf("%s\terror\t%d\t%s", notation, offset, field)
	}
	p := l.Params()
	return fmt.Sprintf("%s\t%s\t%d %d %d %d %d %d %d %d", notation, l,
		p.Kind, p.Anchor, p.Unit, p.Capacity, p.Step, p.Drain, p.Block, p.History)
}

func TestCanonicalNotationRoundTrips(t *testing.T) {
	input, err := os.ReadFile("testdata/notations.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(input)) {
		l, err := headgate.Parse(strings.TrimSuffix(line, "\n"))
		if err != nil {
			continue
		}
		reparsed, err := headgate.Parse(l.String())
		if err != nil {
			t.Errorf("%q prints as %q, which does not parse: %v", line, l, err)
			continue
		}
		if reparsed.String() != l.String() || reparsed.Params() != l.Params() {
			t.Errorf("%q prints as %q, which parses as %q", line, l, reparsed)
		}
	}
}

func TestParseErrorsPointAtThePlace(t *testing.T) {
	for _, tt := range []struct{ notation, want string }{
		{"token-bucket 0/s", `limit "token-bucket 0/s": amount (at character 14): is 0; it must be above 0`},
		{"token-bucket -1/s", `limit "token-bucket -1/s": amount (at character 14): "-1" is negative; it must be above 0`},
		{"token-bucket NaN/s", `limit "token-bucket NaN/s": amount (at character 14): "NaN" is not a decimal number such as 3 or 0.5`},
		{"token-bucket 5/s burst 0", `limit "token-bucket 5/s burst 0": burst (at character 24): is 0; it must be above 0`},
		{"token-bucket 5/month", `limit "token-bucket 5/month": period (at character 16): "month" is a calendar's, which only fixed-window follows; write a length of time such as 1m, 1h, 1d or 30d`},
		{"5 per fortnight", `limit "5 per fortnight": period (at character 7): "fortnight" is not a length of time such as 30s, 15m or 30d`},
		{" 5\tper  month burst 6", "limit \" 5\\tper  month burst 6\": period (at character 9): \"month\" is a calendar's, which only fixed-window follows; write a length of time such as 1m, 1h, 1d or 30d"},
		{"5/x per minute", `limit "5/x per minute": period (at character 3): "x/minute" is not a length of time such as 30s, 15m or 30d`},
		{"5 per minute burst 0", `limit "5 per minute burst 0": burst (at character 20): is 0; it must be above 0`},
		{"0 per minute", `limit "0 per minute": amount (at character 1): is 0; it must be above 0`},
		{"sliding-log 5/1m history", `limit "sliding-log 5/1m history": history (at character 25): needs a value`},
	} {
		_, err := headgate.Parse(tt.notation)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%q:\n got %v\nwant %s", tt.notation, err, tt.want)
		}
		if !errors.Is(err, headgate.ErrInvalid) {
			t.Errorf("%q: got %v, want ErrInvalid", tt.notation, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	input, err := os.ReadFile("testdata/notations.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(input)) {
		f.Add(strings.TrimSuffix(line, "\n"))
	}
	f.Fuzz(func(t *testing.T, notation string) {
		l, err := headgate.Parse(notation)
		if err != nil {
			_ = err.Error()
			if !errors.Is(err, headgate.ErrInvalid) {
				t.Fatalf("%q: %v is not an ErrInvalid", notation, err)
			}
			return
		}
		_, _ = l.Explain(), l.Bound().String()
		p := l.Params()
		if err := p.Valid(); err != nil {
			t.Fatalf("%q compiles to parameters that are not valid: %v", notation, err)
		}
		if reparsed, err := headgate.Parse(l.String()); err != nil || reparsed.Params() != p {
			t.Fatalf("%q prints as %q, which does not parse to the same limit: %v", notation, l, err)
		}
	})
}
