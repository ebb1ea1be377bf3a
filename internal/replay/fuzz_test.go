package replay

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"
)

// fuzzReader checks that no line makes a reader panic, and that what it reads
// is in the range of the laws.
func fuzzReader(f *testing.F, name string, format Format, fields ...string) {
	data, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		f.Add(bytes.TrimSpace(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		for _, field := range fields {
			rd, err := newReader(format, field, readerConfig{changed: time.Unix(1e9, 0), attempts: true})
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time with what was remembered
				before := bytes.Clone(line)
				rec, err := rd.read(line)
				if err == nil && rec.count > 0 && (rec.at <= 0 || rec.at > maxTime) {
					t.Errorf("time %d of %q", rec.at, line)
				}
				if !bytes.Equal(line, before) {
					t.Errorf("%q was changed", before)
				}
			}
		}
	})
}

func FuzzAccess(f *testing.F) {
	fuzzReader(f, "testdata/combined.log", Combined, "ip", "user", "path", "method", "status")
}

func FuzzCommon(f *testing.F) { fuzzReader(f, "testdata/combined.log", Common, "ip", "path") }

func FuzzObjects(f *testing.F) {
	fuzzReader(f, "testdata/caddy.json", JSON, "ip", "request.headers.User-Agent.0", "a.b", "0")
}

func FuzzSSHD(f *testing.F) { fuzzReader(f, "testdata/sshd.log", SSHD, "ip", "user") }

// FuzzLookup holds lookup against encoding/json for names of one level.
func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":{"a":2}}`), "a")
	f.Add([]byte(`{"\u0061":"x\n","c":[{}]}`), "a")
	f.Fuzz(func(t *testing.T, doc []byte, name string) {
		var want map[string]json.RawMessage
		if json.Unmarshal(doc, &want) != nil || want == nil || !json.Valid(doc) {
			return
		}
		if got := lookup(skipSpace(doc), name); got != nil && !json.Valid(got) {
			t.Errorf("%q in %q: got %q", name, doc, got)
		}
		if v, ok := want[name]; ok && name != "" && lookup(skipSpace(doc), name) == nil &&
			bytes.Count(doc, []byte{':'}) == 1 {
			t.Errorf("%q in %q: got nothing, want %s", name, doc, v)
		}
	})
}

func FuzzTimes(f *testing.F) {
	f.Add([]byte("2015-05-17T10:05:03.25Z"))
	f.Add([]byte("1431857103.25"))
	f.Add([]byte("17/May/2015:10:05:03 +0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if us, ok := rfc3339(b); ok {
			if want, err := time.Parse(time.RFC3339, string(b)); err == nil && want.UnixMicro() != us {
				t.Errorf("%q: got %d, want %d", b, us, want.UnixMicro())
			}
		}
		if us, ok := epoch(b); ok && (us <= 0 || us > maxTime) {
			t.Errorf("%q: got %d", b, us)
		}
		new(dateCache).access(b)
	})
}

func FuzzVHost(f *testing.F) {
	f.Add([]byte(`example.com:80 192.0.2.1 - Ann [17/May/2015:10:05:03 +0000] "GET /a#b HTTP/1.1" 200 5 "-" "-"`))
	fuzzReader(f, "testdata/combined.log", VHost, "ip", "path")
}
