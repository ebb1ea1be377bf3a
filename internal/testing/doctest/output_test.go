package doctest

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	stampShape = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d([.,]\d+)?(Z|[+-]\d\d(:?\d\d)?\b| UTC)?`)
	dateShape  = regexp.MustCompile(`\d{4}-\d\d-\d\d`)
	blanks     = regexp.MustCompile(`[ \t]+`)
	rules      = regexp.MustCompile(`-{2,}`)
	units      = regexp.MustCompile(`\b[\d.]+(ns|us|µs|ms|s)\b`)
	figure     = regexp.MustCompile(`\d[\d,]*(\.\d+)?`)
)

// normalize replaces in a line what differs each time: times, dates and blanks.
func normalize(line string) string {
	line = stampShape.ReplaceAllString(line, "<time>")
	line = dateShape.ReplaceAllString(line, "<date>")
	line = rules.ReplaceAllString(line, "--")
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}

// compareOutput returns an error if the output that a page shows does not match what was printed. In the page, a line
// of "..." matches any lines, and "..." in a line any text. Times may differ, and other numbers by 5 %, unless they are
// so large that they count microseconds. With shapeOnly, any numbers match.
func compareOutput(shown, printed string, shapeOnly bool) error {
	want, got := lines(shown), lines(printed)
	if at := matchLines(want, got, shapeOnly); at >= 0 {
		return fmt.Errorf("the page shows %q; printed was:\n%s", strings.Join(want[at:min(at+1, len(want))], ""),
			printed)
	}
	return nil
}

func lines(text string) (list []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if line = normalize(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// matchLines returns -1 if all lines match, or else how many do.
func matchLines(want, got []string, shapeOnly bool) (at int) {
	for i, w := range want {
		if w == "..." {
			rest := want[i+1:]
			for from := range len(got) + 1 {
				if matchLines(rest, got[from:], shapeOnly) < 0 {
					return -1
				}
			}
			return i + 1
		}
		if len(got) == 0 || !matchLine(w, got[0], shapeOnly) {
			return i
		}
		got = got[1:]
	}
	if len(got) > 0 {
		return len(want)
	}
	return -1
}

func matchLine(want, got string, shapeOnly bool) bool {
	before, after, any := strings.Cut(want, "...")
	if any {
		for end := len(got); end >= 0; end-- {
			for start := 0; start <= end; start++ {
				if same(before, got[:start], shapeOnly) && matchLine(after, got[end:], shapeOnly) {
					return true
				}
			}
		}
		return false
	}
	return same(want, got, shapeOnly)
}

// same compares two texts without their numbers, and then the numbers.
func same(want, got string, shapeOnly bool) bool {
	if shapeOnly {
		want, got = units.ReplaceAllString(want, "0s"), units.ReplaceAllString(got, "0s")
	}
	if figure.ReplaceAllString(want, "0") != figure.ReplaceAllString(got, "0") {
		return false
	}
	w, g := figure.FindAllString(want, -1), figure.FindAllString(got, -1)
	for i := range w {
		a, err1 := strconv.ParseFloat(strings.ReplaceAll(w[i], ",", ""), 64)
		b, err2 := strconv.ParseFloat(strings.ReplaceAll(g[i], ",", ""), 64)
		switch {
		case err1 != nil || err2 != nil:
			return false
		case shapeOnly, a == b, a > 1e12 && b > 1e12, math.Abs(a-b) <= 0.05*max(a, b):
		default:
			return false
		}
	}
	return true
}

func TestOutputsAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		shown, printed string
		shape, want    bool
	}{
		{"a  1\n", "a 1\n", false, true},
		{"a 1\n", "a 2\n", false, false},
		{"a 1\n", "a 2\n", true, true},
		{"a 1\n", "b 2\n", true, false},
		{"p50 1.46ms\n", "p50 190ns\n", true, true},
		{"ms 12000", "ms 11998", false, true},
		{"ms 12000", "ms 11000", false, false},
		{`"at":1795230000000000`, `"at":1895230000000001`, false, true},
		{"2026-11-22 07:08:09.5+00 x", "2027-01-02 03:04:05+00 x", false, true},
		{"2026-11-22 07:08:09.5+00 x", "2027-01-02 03:04:05+00 y", false, false},
		{"a\n...\nb\n", "a\n1\n2\nb\n", false, true},
		{"a\n...\nb\n", "a\n1\n2\nc\n", false, false},
		{"a\n...\n", "a\n", false, true},
		{"a\n", "a\nb\n", false, false},
		{"a ... b ... c", "a 1 b 2 c", false, true},
		{"a ... b", "a 1 c", false, false},
		{"12,345 lines", "12,346 lines", false, true},
	} {
		if err := compareOutput(c.shown, c.printed, c.shape); (err == nil) != c.want {
			t.Errorf("%q, %q: got %v", c.shown, c.printed, err)
		}
	}
}
