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
	dashRun    = regexp.MustCompile(`-{2,}`)
	duration   = regexp.MustCompile(`\b[\d.]+(ns|us|µs|ms|s)\b`)
	number     = regexp.MustCompile(`\d[\d,]*(\.\d+)?`)
)

// normalize replaces the parts of a line that differ from run to run: times, dates, blanks and runs of dashes.
func normalize(line string) string {
	line = stampShape.ReplaceAllString(line, "<time>")
	line = dateShape.ReplaceAllString(line, "<date>")
	line = dashRun.ReplaceAllString(line, "--")
	return strings.TrimSpace(blanks.ReplaceAllString(line, " "))
}

// compareOutput returns an error if the output that a page shows does not match the output of a run. In the page, a
// line of "..." matches any lines, and "..." in a line any text. Times and dates may differ, and other numbers by 5 %.
// Numbers above 1e12, which are times in microseconds, may differ by more. With anyNumbers, any numbers match.
func compareOutput(pageText, output string, anyNumbers bool) error {
	want, got := lines(pageText), lines(output)
	if at := matchLines(want, got, anyNumbers); at >= 0 {
		return fmt.Errorf("the page shows %q; printed was:\n%s", strings.Join(want[at:min(at+1, len(want))], ""),
			output)
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

// matchLines returns -1 if all lines match, or else the index of the first line of want that does not match.
func matchLines(want, got []string, anyNumbers bool) (at int) {
	for i, w := range want {
		if w == "..." {
			tail := want[i+1:]
			for from := range len(got) + 1 {
				if matchLines(tail, got[from:], anyNumbers) < 0 {
					return -1
				}
			}
			return i + 1
		}
		if len(got) == 0 || !matchLine(w, got[0], anyNumbers) {
			return i
		}
		got = got[1:]
	}
	if len(got) > 0 {
		return len(want)
	}
	return -1
}

func matchLine(want, got string, anyNumbers bool) bool {
	prefix, suffix, hasDots := strings.Cut(want, "...")
	if hasDots {
		for end := len(got); end >= 0; end-- {
			for start := 0; start <= end; start++ {
				if sameText(prefix, got[:start], anyNumbers) && matchLine(suffix, got[end:], anyNumbers) {
					return true
				}
			}
		}
		return false
	}
	return sameText(want, got, anyNumbers)
}

// sameText compares two texts without their numbers, and then the numbers.
func sameText(want, got string, anyNumbers bool) bool {
	if anyNumbers {
		want, got = duration.ReplaceAllString(want, "0s"), duration.ReplaceAllString(got, "0s")
	}
	if number.ReplaceAllString(want, "0") != number.ReplaceAllString(got, "0") {
		return false
	}
	wantNumbers, gotNumbers := number.FindAllString(want, -1), number.FindAllString(got, -1)
	for i := range wantNumbers {
		a, wantErr := strconv.ParseFloat(strings.ReplaceAll(wantNumbers[i], ",", ""), 64)
		b, gotErr := strconv.ParseFloat(strings.ReplaceAll(gotNumbers[i], ",", ""), 64)
		switch {
		case wantErr != nil || gotErr != nil:
			return false
		case anyNumbers, a == b, a > 1e12 && b > 1e12, math.Abs(a-b) <= 0.05*max(a, b):
		default:
			return false
		}
	}
	return true
}

func TestOutputsAreCompared(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pageText, output string
		anyNumbers, want bool
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
		if err := compareOutput(c.pageText, c.output, c.anyNumbers); (err == nil) != c.want {
			t.Errorf("%q, %q: got %v, want a match: %v", c.pageText, c.output, err, c.want)
		}
	}
}
