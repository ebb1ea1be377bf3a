package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
)

// FuzzRead checks that no reader panics or changes a line, that times are in the range of the laws, that a second
// reading of a line has the same result, unless readers remember lines, and that a skipped line has a reason.
func FuzzRead(f *testing.F) {
	for i, s := range samples {
		for _, line := range append(s.lines[:], s.damaged) {
			f.Add(uint8(i), []byte(line))
		}
	}
	f.Fuzz(func(t *testing.T, index uint8, line []byte) {
		s := &samples[int(index)%len(samples)]
		rd := s.reader(t)
		firstResult := ""
		for n := range 2 { // a reader may remember the line
			oldLine := bytes.Clone(line)
			rec, err := rd.Read(line)
			if err == nil && rec.Count > 0 && (rec.At <= 0 || rec.At > MaxTime) {
				t.Errorf("%s: time %d of %q", s.format, rec.At, line)
			}
			if err == nil && rec.Count > 0 && len(rec.Values) != len(s.fields()) {
				t.Errorf("%s: %d values of %q", s.format, len(rec.Values), line)
			}
			if err == nil && rec.Count == 0 && rec.Skip == "" {
				t.Errorf("%s: %q is skipped without a reason", s.format, line)
			}
			if rec.Spent.End != 0 && rec.Spent.End < rec.At {
				t.Errorf("%s: %q ends before it begins", s.format, line)
			}
			if errors.Is(err, law.ErrInvalid) && s.format != CSV && s.format != W3C {
				t.Errorf("%s: %q is about the whole log: %v", s.format, line, err)
			}
			if !bytes.Equal(line, oldLine) {
				t.Errorf("%s: %q was changed", s.format, oldLine)
			}
			if got := describe(rec, err); n == 0 {
				firstResult = got
			} else if got != firstResult && s.format != SSHD && s.format != W3C { // these readers remember lines
				t.Errorf("%s: %q is read as %q, then as %q", s.format, line, firstResult, got)
			}
		}
	})
}

// FuzzDetect checks that Detect returns a known format or an error.
func FuzzDetect(f *testing.F) {
	for _, s := range samples {
		f.Add([]byte(s.head + s.lines[0] + "\n" + s.lines[1] + "\n" + s.damaged))
	}
	f.Fuzz(func(t *testing.T, head []byte) {
		format, err := Detect(head, Config{})
		if (err == nil) != (format.About() != "") {
			t.Errorf("%q: got format %q, error %v", head, format, err)
		}
	})
}

// FuzzLookup checks that a lookup of a member returns its value, and that every value is valid JSON.
func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"a":2}}`), "a")
	f.Add([]byte(`{"\u0061":"x\n","c":[{}]}`), "a")
	f.Add([]byte(`{"a":{"b.c":[1,{"d":2}]}}`), "a.b.c.1.d")
	f.Fuzz(func(t *testing.T, doc []byte, name string) {
		o, err := parseObject(doc)
		if err != nil {
			return
		}
		got := o.lookup(name)
		if got != nil && !json.Valid(got) {
			t.Errorf("%q in %q: got %q", name, doc, got)
		}
		if v, ok := o.members[name]; ok && string(v) != "null" && !bytes.Equal(got, v) {
			t.Errorf("%q in %q: got %s, want %s", name, doc, got, v)
		}
	})
}

func FuzzTimes(f *testing.F) {
	f.Add([]byte("2015-05-17T10:05:03.25Z"))
	f.Add([]byte("1431857103.25"))
	f.Add([]byte("17/May/2015:10:05:03 +0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if us, ok := parseRFC3339(b); ok {
			if want, err := time.Parse(time.RFC3339, string(b)); err == nil && want.UnixMicro() != us {
				t.Errorf("%q: got %d, want %d", b, us, want.UnixMicro())
			}
		}
		if us, ok := parseEpoch(b); ok && (us <= 0 || us > MaxTime) {
			t.Errorf("%q: got %d", b, us)
		}
		parseCLFTime(b)
	})
}
