package httpkey_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/testing/leaktest"
	"github.com/headgate/headgate/law"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestDerivedKeysCannotBeChosen checks that no text that a client may send makes a derived key.
func TestDerivedKeysCannotBeChosen(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"bob", "", "a|b", `a\|b`, strings.Repeat("x", 600), "sha256:x"} {
		derived := httpkey.DeriveKey(key, "failures")
		if law.ValidKey(derived) != nil || derived == httpkey.DeriveKey(key, "other") {
			t.Errorf("%q: got derived key %q, want a valid one", key, derived)
		}
		for _, text := range []string{derived, httpkey.Join(key, "failures"), key + "|failures"} {
			if httpkey.Join(text) == derived {
				t.Errorf("%q: the text %q makes the derived key %q", key, text, derived)
			}
		}
	}
}

func TestNetworkOfAnAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"192.0.2.7":            "192.0.2.7",
		"::ffff:192.0.2.7":     "192.0.2.7",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"2001:db8:1:2::1":      "2001:db8:1:2::/64",
		"fe80::1%eth0":         "fe80::/64",
		"2001:db8:1:3::1":      "2001:db8:1:3::/64",

		"64:ff9b::c633:6407":                   "198.51.100.7",
		"64:ff9b::192.0.2.7%eth0":              "192.0.2.7",
		"::ffff:0:192.0.2.7":                   "192.0.2.7",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "192.0.2.45",
		"64:ff9b:1::c633:6407":                 "64:ff9b:1::/64", // a prefix that a translator has chosen itself
		"64:ff9b:0:0:1::1":                     "64:ff9b::/64",
		"::1":                                  "::/64",
		"::":                                   "::/64",
		"2002:c000:207::1":                     "2002:c000:207::/64",
	} {
		if got := httpkey.NetworkOf(netip.MustParseAddr(text), httpkey.SharedBits); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
	if got := httpkey.NetworkOf(netip.Addr{}, httpkey.SharedBits); got != "" {
		t.Errorf("no address: got %q, want an empty key", got)
	}
}

func TestJoinedKeysAreValidAndDiffer(t *testing.T) {
	t.Parallel()
	longPart := strings.Repeat("x", law.MaxKey+1)
	lists := [][]string{
		{"a", "b"},
		{"a|b", ""},
		{"a", "|b"},
		{`a\`, "b"},
		{`a\|b`, ""},
		{"", "a|b"},
		{"", ""},
		{`\`, `\`},
		{longPart, "b"},
		{longPart, "c"},
		{"a", longPart},
		{"\xff", "b"},
		{"\xfe", "b"},
		{"a\x00", "b"},
		{"a", "\x00b"},
	}
	seen := map[string][]string{}
	for _, list := range lists {
		key := httpkey.Join(list...)
		if err := law.ValidKey(key); err != nil {
			t.Errorf("%.20q: got an invalid key: %v", list, err)
		}
		if other, exists := seen[key]; exists {
			t.Errorf("%.20q and %.20q make one key, %q", list, other, key)
		}
		seen[key] = list
	}
	if got := httpkey.Join("a|b"); got != "a|b" {
		t.Errorf("one part: got %q, want it unchanged", got)
	}
	if got := httpkey.Join(longPart); got == httpkey.Join(got) {
		t.Error("the hash of a long part is its own key, want another one")
	}
	if got := httpkey.Join("headgate:shared:1"); law.ValidKey(got) != nil {
		t.Errorf("got %q, want a valid key", got)
	}
}

func TestClientBehindProxies(t *testing.T) {
	t.Parallel()
	proxies, err := httpkey.ParseProxies("10.0.0.0/8", "2001:db8::/32", "::ffff:192.0.2.0/120", "198.51.100.9")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		remote    string
		forwarded []string
		want      string // empty: an error
	}{
		{"203.0.113.5:1234", nil, "203.0.113.5"},
		{"203.0.113.5:1234", []string{"1.1.1.1"}, "203.0.113.5"}, // from no proxy
		{"10.1.2.3:80", nil, "10.1.2.3"},
		{"10.1.2.3:80", []string{"203.0.113.5"}, "203.0.113.5"},
		{"10.1.2.3:80", []string{"6.6.6.6, 203.0.113.5, 10.9.9.9"}, "203.0.113.5"},
		{"10.1.2.3:80", []string{"6.6.6.6", "203.0.113.5,10.9.9.9"}, "203.0.113.5"},
		{"10.1.2.3:80", []string{"6.6.6.6,203.0.113.5", "10.9.9.9"}, "203.0.113.5"},
		{"10.1.2.3:80", []string{"nonsense, 203.0.113.5"}, "203.0.113.5"}, // a client may write anything before its address
		{"10.1.2.3:80", []string{"203.0.113.5, nonsense"}, ""},
		{"10.1.2.3:80", []string{"10.0.0.1, 10.0.0.2"}, "10.0.0.1"},
		{"10.1.2.3:80", []string{"", " , "}, "10.1.2.3"},
		{"[2001:db8::1]:80", []string{"[2001:4860::1]:99"}, "2001:4860::1"},
		{"192.0.2.3:80", []string{"203.0.113.5:99"}, "203.0.113.5"},
		{"[::ffff:10.1.2.3]:80", []string{"::ffff:203.0.113.5"}, "203.0.113.5"},
		{"198.51.100.9:80", []string{"203.0.113.5"}, "203.0.113.5"},
		{"198.51.100.8:80", []string{"203.0.113.5"}, "198.51.100.8"},
		{"@", nil, ""}, // a Unix socket
		{"10.1.2.3:80", []string{strings.Repeat("10.0.0.1,", 101) + "10.0.0.1"}, ""},
	} {
		got, err := proxies.Client(tt.remote, http.Header{httpkey.Forwarded: tt.forwarded})
		if tt.want == "" && err == nil || tt.want != "" && (err != nil || got.String() != tt.want) {
			t.Errorf("%s %.60q: got %v, %v; want %q", tt.remote, tt.forwarded, got, err, tt.want)
		}
	}
	for _, text := range []string{"", "10.0.0.0/33", "10.0.0", "host", "::ffff:10.0.0.0/90"} {
		if _, err := httpkey.ParseProxies(text); err == nil {
			t.Errorf("ParseProxies(%q) succeeded, want an error", text)
		}
	}
}

func TestJSONNumberAndJSONLength(t *testing.T) {
	t.Parallel()
	const body = `{"rows":[1,{"a":[2]},"x"],"usage":{"other":{"total":1},"total":12345678901234567890.5},"n":null,"e":[]}`
	for path, want := range map[string]string{
		"usage.total": "12345678901234567890.5", "usage.other.total": "1", "rows": "", "usage": "", "n": "",
		"usage.none": "", "rows.a": "", "": "", "usage.total.x": "",
	} {
		got, err := httpkey.JSONNumber([]byte(body), path)
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %q, %v; want %q", path, got, err, want)
		}
	}
	for path, want := range map[string]int{"rows": 3, "e": 0, "usage": -1, "none": -1, "": -1} {
		got, err := httpkey.JSONLength([]byte(body), path)
		if want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("%s: got %d, %v; want %d", path, got, err, want)
		}
	}
	if n, err := httpkey.JSONLength([]byte(`[1, 2]`), ""); n != 2 || err != nil {
		t.Errorf("the body itself: got %d, %v; want 2", n, err)
	}
	for _, text := range []string{
		"", "{", `{"rows":[1,2`, `{"rows":[1 2]}`, `{"rows":tru}`, "\xff", `{"rows":[1],"a":`, `{"rows":[1]`,
		`{"rows":[1],"rows":[1,2]}`, `{"rows":[1],"ROWS":[1,2]}`, `{"rows":[1],"row\u0073":[]}`,
	} {
		if _, err := httpkey.JSONLength([]byte(text), "rows"); err == nil {
			t.Errorf("JSONLength(%q) succeeded, want an error", text)
		}
	}
}

func FuzzClient(f *testing.F) {
	proxies, _ := httpkey.ParseProxies("10.0.0.0/8")
	f.Add("10.0.0.1:80", "1.2.3.4, 10.0.0.2")
	f.Add("10.0.0.1:80", "[::1]:80, ,,")
	f.Fuzz(func(t *testing.T, remote, forwarded string) {
		a, err := proxies.Client(remote, http.Header{httpkey.Forwarded: {forwarded}})
		if (err == nil) != a.IsValid() {
			t.Errorf("got %v, %v; want an address or an error", a, err)
		}
		if err == nil && law.ValidKey(httpkey.NetworkOf(a, httpkey.SharedBits)) != nil {
			t.Errorf("the network of %v is no valid key", a)
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,2]}}`), "a.b")
	f.Add([]byte(`[`), "")
	f.Fuzz(func(t *testing.T, text []byte, path string) {
		if n, err := httpkey.JSONLength(text, path); err == nil && n > len(text) {
			t.Errorf("got %d elements in %d bytes", n, len(text))
		}
		_, _ = httpkey.JSONNumber(text, path)
	})
}
