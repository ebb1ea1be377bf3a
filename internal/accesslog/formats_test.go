package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestFormats(t *testing.T) {
	t.Parallel()
	var tested []Format
	for _, s := range samples {
		t.Run(string(s.format), func(t *testing.T) {
			t.Parallel()
			rd := s.reader(t)
			for i, line := range s.lines {
				read := []byte(line)
				if got := describe(rd.Read(read)); got != s.want[i] {
					t.Errorf("line %d: got %q, want %q", i+1, got, s.want[i])
				}
				if string(read) != line {
					t.Errorf("line %d was changed", i+1)
				}
			}
			if rec, err := rd.Read([]byte(s.damaged)); !errors.Is(err, s.damagedErr) {
				t.Errorf("damaged: got %q, want %v", describe(rec, err), s.damagedErr)
			}
			head := s.head + strings.Join(s.lines[:], "\n") + "\n"
			if got, err := Detect([]byte(head), Config{}); got != s.format || err != nil {
				t.Errorf("Detect: got %q, error %v; want %q", got, err, s.format)
			}
			// One damaged line does not hide the format.
			if got, err := Detect([]byte(head+s.damaged+"\n"), Config{}); got != s.format || err != nil {
				t.Errorf("Detect with a damaged line: got %q, error %v; want %q", got, err, s.format)
			}
			if s.format.About() == "" {
				t.Error("About returns no text")
			}
		})
		tested = append(tested, s.format)
	}
	for _, f := range Formats() {
		if !slices.Contains(tested, f) {
			t.Errorf("%s has no sample", f)
		}
	}
}

// TestNoFormatReadsAnother checks that a reader reads no line of another format, unless its format is more general or
// it reads the same from the line.
func TestNoFormatReadsAnother(t *testing.T) {
	t.Parallel()
	generalFormats := map[Format][]Format{ // the more general formats of each
		Combined: {Common}, TraefikCLF: {Combined, Common},
		Caddy: {JSON}, TraefikJSON: {JSON}, Usage: {JSON},
	}
	pairs, refusals := 0, 0
	for _, s := range samples {
		for _, other := range samples {
			if s.format == other.format || slices.Contains(generalFormats[s.format], other.format) {
				continue
			}
			rd := other.reader(t)
			ownReader := s.reader(t)
			for _, line := range s.lines {
				pairs++
				rec, err := rd.Read([]byte(line))
				if err == nil && rec.Count > 0 {
					if ownRecord, _ := ownReader.Read([]byte(line)); describe(rec, nil) != describe(ownRecord, nil) {
						t.Errorf("%s reads %q of %s as %q", other.format, line, s.format, describe(rec, err))
					}
				}
				if err != nil || rec.Skip != "" {
					refusals++
				}
			}
		}
	}
	t.Logf("%d lines before readers of other formats, %d refused with a reason", pairs, refusals)
}

// TestMixedLogs checks that Detect returns the format of six of the seven lines of a log, or another format that reads
// the same from the first of them.
func TestMixedLogs(t *testing.T) {
	t.Parallel()
	for _, s := range samples {
		for _, other := range samples {
			if s.format == other.format || s.head != "" && other.head != "" {
				continue
			}
			log := s.head + strings.Repeat(strings.Join(s.lines[:2], "\n")+"\n", 3) + other.lines[0] + "\n"
			got, err := Detect([]byte(log), Config{})
			if err != nil {
				t.Errorf("%s with one line of %s: %v", s.format, other.format, err)
				continue
			}
			if got == s.format {
				continue
			}
			// A format that is more general than both may read more of the log.
			rd, err := New(got, []string{"ip"}, Config{Year: 2015})
			if err != nil {
				t.Fatal(err)
			}
			ownReader, err := New(s.format, []string{"ip"}, Config{Year: 2015})
			if err != nil {
				t.Fatal(err)
			}
			line := []byte(s.lines[0])
			if rec, err := rd.Read(line); err != nil || describe(rec, nil) != withoutTokens(ownReader.Read(line)) {
				t.Errorf("%s with one line of %s: recognised as %s, which reads %q", s.format, other.format, got,
					describe(rec, err))
			}
		}
	}
}

// withoutTokens describes the result of reading a line, without the tokens of a call.
func withoutTokens(rec Record, err error) string {
	rec.Spent = Spent{}
	return describe(rec, err)
}

// TestDamagedLines cuts every sample at every place, and replaces single bytes. It checks that a cut line is read like
// the whole line or not at all, and that no line makes a reader panic.
func TestDamagedLines(t *testing.T) {
	t.Parallel()
	for _, s := range samples {
		sameCount, refusals := 0, 0
		for _, line := range s.lines {
			whole := describe(s.reader(t).Read([]byte(line)))
			for n := range len(line) {
				rec, err := s.reader(t).Read([]byte(line[:n]))
				got := describe(rec, err)
				switch {
				case err != nil || rec.Count == 0:
					refusals++
				case s.format == CSV && n > strings.LastIndexByte(line, ','): // the last column is shorter
				case s.format == SSHD && n > strings.LastIndexByte(line, '.'): // the address is shorter
				case got != whole:
					t.Errorf("%s: cut at %d: %q is read as %q, not %q", s.format, n, line[:n], got, whole)
				default:
					sameCount++
				}
			}
			for n := range len(line) {
				for _, c := range []byte{0, ' ', '"', 0xff} {
					b := bytes.Clone([]byte(line))
					b[n] = c
					_, _ = s.reader(t).Read(b)
				}
			}
		}
		t.Logf("%s: %d cut lines read as the whole one, %d refused", s.format, sameCount, refusals)
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format Format
		field  string
		lines  []string
		want   string // description of the last line
	}{
		"no such column": {CSV, "colour", []string{"time,ip"}, `field: a log of the format csv has no "colour", but time and ip`},
		"semicolons":     {CSV, "ip", []string{"ts;ip", "1;10.0.0.1"}, "1970-01-01T00:00:01Z 10.0.0.1"},
		"tabs":           {CSV, "user", []string{"ts\tuser", "1\ta,b"}, "1970-01-01T00:00:01Z a,b"},
		"alias":          {CSV, "ip", []string{"ts,remote_addr", "1,::1"}, "1970-01-01T00:00:01Z ::1"},
		"no time":        {CSV, "ip", []string{"when,ip"}, errCSVHeader.Error()},
		"twice":          {CSV, "ip", []string{"ts,ip,ip"}, errDuplicate.Error()},
		"too few":        {CSV, "ip", []string{"ts,ip", "1"}, errColumnCount.Error()},
		"bad time":       {CSV, "ip", []string{"ts,ip", "x,a"}, errBadTime.Error()},
		"stray quote":    {CSV, "ip", []string{"ts,ip", `1,a"b`}, errCSVQuotes.Error()},
		"after a quote":  {CSV, "ip", []string{"ts,ip", `1,"a"b`}, errCSVQuotes.Error()},
		"W3C columns change": {W3C, "ip", []string{
			"#Fields: date time c-ip", "#Fields: c-ip time date", "10.0.0.1 00:00:01.5 1970-01-01",
		}, "1970-01-01T00:00:01.5Z 10.0.0.1"},
		"W3C without its columns": {W3C, "ip", []string{"1970-01-01 00:00:01 10.0.0.1"}, errW3CNoFields.Error()},
		"W3C without a date":      {W3C, "ip", []string{"#Fields: time c-ip"}, errW3CNoTime.Error()},
		"W3C without the field":   {W3C, "user", []string{"#Fields: date time c-ip"}, `field: a log of the format iis has no "user", but date, time and c-ip`},
		"W3C by its own name":     {W3C, "s-port", []string{"#Fields: date time s-port", "1970-01-01 00:00:01 80"}, "1970-01-01T00:00:01Z 80"},
		"W3C of CloudFront": {W3C, "ip", []string{
			"#Version: 1.0", "#Fields: date time x-edge-location c-ip cs(User-Agent)",
			"1970-01-01\t00:00:01\tFRA2\t10.0.0.1\tMozilla/5.0 (X11)",
		}, "1970-01-01T00:00:01Z 10.0.0.1"},
		"W3C with a date above": {W3C, "path", []string{
			"#Version: 1.0", "#Date: 02-Jan-1970 00:00:00", "#Fields: time cs-method cs-uri", "00:34:23 GET /foo/bar.html?a=b",
		}, "1970-01-02T00:34:23Z /foo/bar.html"},
		"W3C past midnight": {W3C, "cs-uri", []string{
			"#Date: 1970-01-01 23:00:00", "#Fields: time cs-uri", "23:59:59 /a", "00:00:01 /b",
		}, errW3CDay.Error()},
		"W3C after midnight": {W3C, "cs-uri", []string{
			"#Date: 1970-01-01 23:00:00", "#Fields: time cs-uri", "23:59:59 /a",
			"#Date: 1970-01-02 00:00:00", "00:00:01 /b",
		}, "1970-01-02T00:00:01Z /b"},
		"W3C with a bad time": {W3C, "s-port", []string{"#Fields: date time s-port", "1970-01-01 00:00:61 80"}, errW3CTime.Error()},
	} {
		rd, err := New(c.format, []string{c.field}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, line := range c.lines {
			got = describe(rd.Read([]byte(line)))
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestDetectSaysWhy(t *testing.T) {
	t.Parallel()
	goodLine := samples[0].lines[0] + "\n"
	for log, want := range map[string]string{
		"":                   ErrEmpty.Error(),
		"a\nb\n":             `the first lines are none of traefik, combined, common`,
		goodLine + "b\nc\nd": `less than half of the first lines is of one format (combined reads 1 of 4, and of another: does not begin`,
	} {
		if _, err := Detect([]byte(log), Config{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", log, err, want)
		}
	}
}
