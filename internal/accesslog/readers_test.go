package accesslog

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/law"
)

// readAll reads every line of a file and returns "time value" for each request, or "skip" or the error of the line.
func readAll(t *testing.T, name string, f Format, field string, cfg Config) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rd, err := New(f, []string{field}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range bytes.Lines(data) {
		rec, err := rd.Read(bytes.TrimSuffix(line, []byte{'\n'}))
		switch {
		case err != nil:
			got = append(got, err.Error())
		case rec.Count == 0:
			got = append(got, "skip")
		case rec.Values[0].Err != nil:
			got = append(got, rec.Values[0].Err.Error())
		default:
			for range rec.Count {
				got = append(got, timeOf(rec.At).Format(time.RFC3339Nano)+" "+string(rec.Values[0].Text))
			}
		}
	}
	return got
}

// firstValue returns the value of a line's first field; "" if there is none.
func firstValue(rec Record) string {
	if len(rec.Values) == 0 {
		return ""
	}
	return string(rec.Values[0].Text)
}

func compareLines(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("got %d, want %d: %q", len(got), len(want), got)
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("line %d: got %q, want %q", i+1, got[i], want[i])
		}
	}
}

func TestCombined(t *testing.T) {
	t.Parallel()
	dropTimes := func(s []string) []string {
		for i := range s {
			s[i] = s[i][strings.IndexByte(s[i], ' ')+1:]
		}
		return s
	}
	for _, f := range []Format{Combined, Common} {
		compareLines(t, readAll(t, "testdata/combined.log", f, "ip", Config{}), []string{
			"2015-05-17T10:05:03Z 83.149.9.216", "2015-05-17T10:05:43Z 83.149.9.216",
			"2015-05-17T10:05:47Z 83.149.9.216",
			"2015-05-17T10:05:12Z 83.149.9.216", "2015-05-17T10:05:22Z 66.249.73.185",
			"2015-05-17T11:05:17Z 218.30.103.62",
			"2015-05-17T16:05:27Z 89.170.74.95", "2015-05-19T10:05:32Z 24.111.34.227",
			"2015-05-20T12:05:17Z 46.118.127.106",
		})
	}
	compareLines(t, dropTimes(readAll(t, "testdata/combined.log", Combined, "status", Config{})),
		[]string{"200", "200", "200", "200", "404", "304", "200", "200", "200"})
	compareLines(t, dropTimes(readAll(t, "testdata/combined.log", Combined, "method", Config{}))[5:],
		[]string{"GET", "HEAD", "GET", "GET"})
	compareLines(t, dropTimes(readAll(t, "testdata/combined.log", Combined, "path", Config{}))[4:], []string{
		"/doc/index.html", "/projects/xdotool/xdotool.xhtml", "/projects/xdotool/", "/articles/dynamic-dns-with-dhcp/",
		"/scripts/grok-py-test/configlib.py",
	})
}

func TestCombinedLines(t *testing.T) {
	t.Parallel()
	const head = `::1 - Ann Lee [29/Feb/2016:23:59:60 -0130] `
	for _, c := range []struct {
		line, field string
		want        string
		err         error
	}{
		{head + `"GET /x HTTP/1.1" 200 5 "-" "a"`, "ip", "::1", nil},
		{head + `"GET /x HTTP/1.1" 200 5 "-" "a"`, "user", "Ann Lee", nil},
		{head + `"GET /a b#c?d HTTP/1.1" 200 - "-" "a"`, "path", "/a b", nil},
		{head + `"GET /\"q\" \\" 200 5 "\"" "a`, "path", `/\"q\" \\`, nil},
		{head + `"-" 408 0 "-" "-"`, "method", "-", nil},
		{head + `"\x16\x03" 400 0 "-" "-"`, "path", `\x16\x03`, nil},
		{head + `"GET /x HTTP/1.1" 200 5`, "ip", "", errNoAgent},
		{head + `"GET /x HTTP/1.1" 200 5 "-"`, "ip", "", errNoAgent},
		{head + `"GET /x HTTP/1.1" 200 5x "-" "-"`, "ip", "", errCLFBytes},
		{head + `"GET /x HTTP/1.1" 20 5 "-" "-"`, "ip", "", errCLFStatus},
		{head + `"GET /x HTTP/1.1 200 5`, "ip", "", errCLFRequest},
		{`::1 - - [29/Feb/2015:23:59:59 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`, "ip", "", errCLFTime},
		{`::1 - - [17/may/2015:23:59:59 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`, "ip", "", errCLFTime},
		{`::1 - - [17/May/2015:24:59:59 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`, "ip", "", errCLFTime},
		{`::1 - - [17/May/2215:23:59:59 +0000] "GET / HTTP/1.1" 200 5 "-" "-"`, "ip", "", errCLFTime},
		{`::1 - - [17/May/2015:23:59:59 0000] "GET / HTTP/1.1" 200 5 "-" "-"`, "ip", "", errCLFTime},
		{`hello`, "ip", "", errCLFStart},
		{``, "ip", "", errCLFStart},
	} {
		rd, err := New(Combined, []string{c.field}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := rd.Read([]byte(c.line))
		if !errors.Is(err, c.err) || firstValue(rec) != c.want {
			t.Errorf("%s: got %q, %v; want %q, %v", c.line, firstValue(rec), err, c.want, c.err)
		}
		if want := time.Date(2016, 3, 1, 1, 30, 0, 0, time.UTC).UnixMicro(); err == nil && rec.At != want {
			t.Errorf("%s: got time %s", c.line, timeOf(rec.At))
		}
	}
}

func TestVirtualHosts(t *testing.T) {
	t.Parallel()
	const lineTail = ` - Ann Lee [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 5 "-" "-"`
	for _, c := range []struct {
		line     string
		client   string // empty: the line has no virtual host, or no address of a client
		vhostErr error  // error of the vhost_combined reader
	}{
		{"example.com:80 192.0.2.1" + lineTail, "192.0.2.1", nil},
		{"example.com:443 2001:db8::1" + lineTail, "2001:db8::1", nil},
		{"192.0.2.9:80 client.example.com" + lineTail, "", nil},
		{"[2001:db8::9]:80 192.0.2.1" + lineTail, "192.0.2.1", nil},
		{"example.com 192.0.2.1" + lineTail, "192.0.2.1", nil}, // nginx: $host $remote_addr
		{"::1" + lineTail, "", errNoVHost},
		{"192.0.2.1" + lineTail, "", errNoVHost},
		{"192.0.2.1:5678" + lineTail, "", errNoVHost},
		{"client.example.com ident Ann" + lineTail[4:], "", errNoVHost},
		{"::1 ident Ann" + lineTail[4:], "", errNoVHost},
		{"example.com:80 192.0.2.1 -", "", errCLFStart},
	} {
		errs := map[Format]error{}
		for _, f := range []Format{Combined, Common, VHost} {
			rd, err := New(f, []string{"ip"}, Config{})
			if err != nil {
				t.Fatal(err)
			}
			rec, err := rd.Read([]byte(c.line))
			if errs[f] = err; f == VHost && firstValue(rec) != c.client {
				t.Errorf("%s: got client %q, want %q", c.line, firstValue(rec), c.client)
			}
		}
		if !errors.Is(errs[VHost], c.vhostErr) {
			t.Errorf("%s: got %v, want %v", c.line, errs[VHost], c.vhostErr)
		}
		if c.vhostErr == nil && (!errors.Is(errs[Combined], errVHost) || !errors.Is(errs[Common], errVHost)) {
			t.Errorf("%s: is taken for one without a virtual host: %v", c.line, errs)
		}
		if errors.Is(c.vhostErr, errNoVHost) && (errs[Combined] != nil || errs[Common] != nil) {
			t.Errorf("%s: got %v", c.line, errs)
		}
	}
	if got, err := Detect([]byte("example.com:80 192.0.2.1"+lineTail+"\n"), Config{}); got != VHost || err != nil {
		t.Errorf("Detect: got %q, error %v; want %q", got, err, VHost)
	}
}

// TestInvalidUTF8OfAFieldIsAnError checks that invalid texts are errors: package json would make one key of several.
func TestInvalidUTF8OfAFieldIsAnError(t *testing.T) {
	t.Parallel()
	for user, want := range map[string]error{
		"a\xffb": errNotText, "\\n\xff": errNotText, `\ud800`: errNotText, `\udc00`: errNotText, `\ud800\n`: errNotText,
		`\ud800\u0041`: errNotText,
		`\ud800\ud800`: errNotText, `x\\ud800`: nil, `\ud83d\ude00`: nil, `\ufffd`: nil, "\ufffd\\n": nil,
		"\\u00e9": nil, "\u00e9": nil,
	} {
		rd, err := New(JSON, []string{"user"}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := rd.Read([]byte(`{"ts":1,"user":"` + user + `"}`))
		if err != nil || !errors.Is(rec.Values[0].Err, want) {
			t.Errorf("%q: got %v, want %v", user, err, want)
		}
	}
}

func TestJSONFields(t *testing.T) {
	t.Parallel()
	read := func(field string) []string {
		return readAll(t, "testdata/caddy.json", JSON, field, Config{})
	}
	badLines := []string{errNoTime.Error(), errJSON.Error(), errObject.Error(), errBadTime.Error()}
	missingText := func(field string) string { return "the field is not there: " + field }
	for _, c := range []struct {
		field               string
		line1, line2, line7 string
	}{
		{"ip", "83.149.9.217", "10.0.0.1", "10.0.0.2"},
		{"request.remote_ip", "83.149.9.216", "10.0.0.1", missingText("request.remote_ip")},
		{"user", "", "ann", missingText("user")},
		{"status", "200", "401", missingText("status")},
		{
			"request.headers.User-Agent.0", "curl/7.81.0", missingText("request.headers.User-Agent.0"),
			missingText("request.headers.User-Agent.0"),
		},
		{
			"request.headers.X.Api.Key.0", `kéy "1"`, missingText("request.headers.X.Api.Key.0"),
			missingText("request.headers.X.Api.Key.0"),
		},
		{"labels.app", missingText("labels.app"), missingText("labels.app"), "shop"},
		{"request.headers", errNotPlain.Error(), missingText("request.headers"), missingText("request.headers")},
		{"path", "/a", "/login", missingText("path")},
	} {
		want := append(append([]string{c.line1, c.line2}, badLines...), c.line7)
		for i, stamp := range map[int]string{
			0: "2015-05-17T10:05:03.25Z ", 1: "2015-05-17T10:05:04Z ",
			6: "2015-05-17T10:05:05.5Z ",
		} {
			if !strings.HasPrefix(want[i], "the field is") {
				want[i] = stamp + want[i]
			}
		}
		compareLines(t, read(c.field), want)
	}
}

func TestSSHD(t *testing.T) {
	t.Parallel()
	cfg := Config{Year: 2015}
	lines := readAll(t, "testdata/sshd.log", SSHD, "ip", cfg)
	var got []string
	for _, l := range lines {
		if l != "skip" {
			got = append(got, l)
		}
	}
	compareLines(t, got, []string{
		"2015-03-27T14:54:57Z 95.152.57.58", "2015-04-06T20:48:25Z 34.204.227.175",
		"2015-04-06T20:48:27Z 34.204.227.175",
		"2015-04-06T20:48:29Z 34.204.227.175", "2015-03-29T23:18:21Z 218.60.136.106",
		"2015-03-29T23:18:33Z 218.60.136.106",
	})
	cfg.Attempts = true
	lines = readAll(t, "testdata/sshd.log", SSHD, "user", cfg)
	got = nil
	for _, l := range lines {
		if l != "skip" {
			got = append(got, l[len("2015-03-27T14:54:57Z "):])
		}
	}
	compareLines(t, got, []string{"support", "", "", "root", "root", "root", "root", "root", "root"})
}

func TestSSHDGuessesTheYear(t *testing.T) {
	t.Parallel()
	line := func(date string) []byte {
		return []byte(date + " 00:00:01 h sshd[1]: Failed password for a from b from 1.2.3.4 port 5 ssh2")
	}
	read := func(cfg Config, dates ...string) (got []string) {
		rd, err := New(SSHD, []string{"ip"}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range dates {
			rec, err := rd.Read(line(d))
			switch {
			case err != nil:
				got = append(got, err.Error())
			case firstValue(rec) != "1.2.3.4":
				t.Errorf("key %q", firstValue(rec))
			default:
				got = append(got, timeOf(rec.At).Format(time.DateOnly))
			}
		}
		return got
	}
	january := time.Date(2016, 1, 5, 0, 0, 0, 0, time.UTC)
	// A log that was changed in January begins in the December before; a late line of the old year stays in it.
	compareLines(t, read(Config{Changed: january}, "Dec 30", "Jan  1", "Dec 31", "Jan  2"),
		[]string{"2015-12-30", "2016-01-01", "2015-12-31", "2016-01-02"})
	compareLines(t, read(Config{Year: 2014}, "Nov  1", "Feb 27", "Mar  1", "Feb 28", "Mar  1", "Jan  1"),
		[]string{"2014-11-01", "2015-02-27", "2015-03-01", "2015-02-28", "2015-03-01", "2016-01-01"})
	got := read(Config{Year: 2015}, "Feb 29")
	if !strings.HasPrefix(got[0], errLeapDay.Error()) {
		t.Errorf("got %q", got)
	}
	rd, err := New(SSHD, []string{"ip"}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := rd.Read([]byte("2024-05-06T07:08:09.5+02:00 h sshd-session[1]: Invalid user x from ::1 port 9"))
	if err != nil || firstValue(rec) != "::1" || timeOf(rec.At).Format(time.RFC3339Nano) != "2024-05-06T05:08:09.5Z" {
		t.Errorf("got %s %q, %v", timeOf(rec.At), firstValue(rec), err)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"1431857103": "2015-05-17T10:05:03Z", "1431857103.25": "2015-05-17T10:05:03.25Z",
		"1431857103250":   "2015-05-17T10:05:03.25Z",
		"1431857103250.5": "2015-05-17T10:05:03.2505Z", "1431857103250001": "2015-05-17T10:05:03.250001Z",
		"1431857103250001999": "2015-05-17T10:05:03.250001Z",
		"1.431857103e9":       "2015-05-17T10:05:03Z", "2015-05-17 10:05:03,25": "2015-05-17T10:05:03.25Z",
		"2015-05-17T10:05:03+02":       "2015-05-17T08:05:03Z",
		"2015-05-17t10:05:03.1234567z": "2015-05-17T10:05:03.123456Z", "-1": "", "0": "", "NaN": "", "1e400": "",
		"": "", "2015-13-17T10:05:03Z": "", "2015-05-17T10:05:03.Z": "",
		"1969-12-31T23:59:59Z": "", "2300-01-01T00:00:00Z": "", "2015-05-17T10:05:03Zx": "",
	} {
		us, ok := parseRFC3339([]byte(in))
		if !ok {
			us, ok = parseEpoch([]byte(in))
		}
		got := ""
		if ok {
			got = timeOf(us).Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	for d := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2112; d = d.AddDate(0, 0, 1) {
		endOfDay := d.Add(24*time.Hour - time.Second)
		got, ok := parseCLFTime([]byte(endOfDay.Format("02/Jan/2006:15:04:05 -0700")))
		leap, _ := parseCLFTime([]byte(d.Format("02/Jan/2006") + ":23:59:60 +0000"))
		if !ok || got != endOfDay.UnixMicro() || leap != got+1e6 {
			t.Fatalf("%s: got %s, and after it %s", endOfDay, timeOf(got), timeOf(leap))
		}
	}
}

func TestFieldsAndFormats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f     Format
		field string
	}{{Combined, "request.ip"}, {Common, "host"}, {SSHD, "path"}, {"xml", "ip"}} {
		if _, err := New(c.f, []string{c.field}, Config{}); !errors.Is(err, law.ErrInvalid) {
			t.Errorf("%s %s: got %v", c.f, c.field, err)
		}
	}
	for name, want := range map[string]Format{
		"testdata/combined.log": Combined, "testdata/caddy.json": Caddy,
		"testdata/sshd.log": SSHD,
	} {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if want == Caddy { // most lines of the file are broken on purpose
			data = bytes.Repeat(data[:bytes.IndexByte(data, '\n')+1], 4)
		}
		if got, err := Detect(data, Config{}); got != want || err != nil {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	common := []byte(`1.1.1.1 - - [17/May/2015:10:05:03 +0000] "GET / HTTP/1.1" 200 5`)
	if got, err := Detect(common, Config{}); got != Common || err != nil {
		t.Errorf("common: got %q, %v", got, err)
	}
	if _, err := Detect([]byte("a\nb\n"), Config{}); !errors.Is(err, ErrFormat) {
		t.Errorf("got %v", err)
	}
}
