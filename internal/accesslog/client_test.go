package accesslog

import (
	"testing"

	"github.com/headgate/headgate/internal/httpkey"
)

// TestIPIsTheAddressOfTheClient checks the field ip of lines with lists, ports, zones, or no address of the client.
func TestIPIsTheAddressOfTheClient(t *testing.T) {
	t.Parallel()
	const tail = ` - - [03/May/2026:10:00:01 +0000] "GET / HTTP/1.1" 200 5 "-" "a"`
	for _, c := range []struct {
		format Format
		line   string
		want   string // empty: there is no client
	}{
		{Combined, "198.51.100.7" + tail, "198.51.100.7"},
		{Combined, "198.51.100.7, 10.0.0.1" + tail, "198.51.100.7"},
		{Combined, "198.51.100.7, 10.0.0.1, 10.0.0.2" + tail, "198.51.100.7"},
		{Combined, "198.51.100.7,10.0.0.1" + tail, "198.51.100.7"},
		{Combined, "198.51.100.7:5555" + tail, "198.51.100.7"},
		{Combined, "[2001:db8::1]:443" + tail, "2001:db8::1"},
		{Combined, "2001:DB8::1" + tail, "2001:db8::1"},
		{Combined, "::ffff:198.51.100.7" + tail, "198.51.100.7"},
		{Combined, "6.6.6.6, 198.51.100.7, 192.168.0.1" + tail, "198.51.100.7"}, // the client has made up the first address
		{Combined, "10.0.0.2, 10.0.0.1" + tail, "10.0.0.2"},
		{Combined, "192.168.1.2 (203.0.113.214)" + tail[2:], ""},
		{Combined, "-" + tail, ""},
		{Combined, "crawler.example.com" + tail, ""},
		{VHost, "2026-05-03T10:00:01.1+02:00 stdout F 198.51.100.7" + tail, ""}, // the line within is Combined
		{VHost, "example.com:80 198.51.100.7, 10.0.0.1" + tail, "198.51.100.7"},
		{JSON, `{"ts":1,"ip":"198.51.100.7:5555"}`, "198.51.100.7"},
		{JSON, `{"ts":1,"ip":"[2001:db8::1]:443"}`, "2001:db8::1"},
		{JSON, `{"ts":1,"ip":"[2001:db8::1]"}`, "2001:db8::1"},
		{JSON, `{"ts":1,"ip":"fe80::1%eth0"}`, "fe80::1"},
		{JSON, `{"ts":1,"ip":" 198.51.100.7"}`, "198.51.100.7"},
		{JSON, `{"ts":1,"ip":"198.51.100.7, 10.0.0.1"}`, "198.51.100.7"},
		{JSON, `{"ts":1,"ip":["198.51.100.7"]}`, ""},
		{JSON, `{"ts":1,"ip":""}`, ""},
		{JSON, `{"ts":1,"ip":"unknown"}`, ""},
		{JSON, `{"ts":1,"ip":3325256711}`, ""},
	} {
		rd, err := New(c.format, []string{"ip"}, Config{})
		if err != nil {
			t.Fatal(err)
		}
		rec, err := rd.Read([]byte(c.line))
		readErr := err
		if err == nil {
			readErr = rec.Values[0].Err
		}
		if got := firstValue(rec); c.want == "" && readErr == nil || got != c.want {
			t.Errorf("%s: got %q, error %v; want %q", c.line, got, readErr, c.want)
		}
	}
}

// TestClientsBehindListedProxies checks that Config.Proxies alone are proxies: other private addresses are clients.
func TestClientsBehindListedProxies(t *testing.T) {
	t.Parallel()
	proxies, err := httpkey.ParseProxies("203.0.113.0/24")
	if err != nil {
		t.Fatal(err)
	}
	rd, err := New(JSON, []string{"ip"}, Config{Proxies: proxies})
	if err != nil {
		t.Fatal(err)
	}
	for list, want := range map[string]string{
		"6.6.6.6, 198.51.100.7, 203.0.113.1":  "198.51.100.7",
		"198.51.100.7, 10.0.0.1, 203.0.113.1": "10.0.0.1",
		"203.0.113.9":                         "203.0.113.9",
	} {
		rec, err := rd.Read([]byte(`{"ts":1,"x_forwarded_for":"` + list + `"}`))
		if err != nil || firstValue(rec) != want {
			t.Errorf("%s: got %q, %v; want %s", list, firstValue(rec), err, want)
		}
	}
}
