package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/headgate/headgate"
)

// said returns the keys that rules charge a request for a target to, as limit=key.
func said(t *testing.T, r *Rules, uri string, h http.Header) (string, error) {
	t.Helper()
	target, err := ParseTarget("uri", uri)
	if err != nil {
		return "", err
	}
	m, err := r.Match(&Request{
		Method: "GET", Path: target.Path, Query: target.Query, Header: h, Client: netip.MustParseAddr("192.0.2.1"),
	})
	var list []string
	for _, c := range m.Charges {
		list = append(list, fmt.Sprint(m.Rule, ":", c.Key))
	}
	return strings.Join(list, " "), err
}

func ruled(t *testing.T, path string, encodedSlash bool, keys ...string) Definition {
	t.Helper()
	d := Definition{Path: Text{Value: path}, EncodedSlash: encodedSlash}
	d.Name.Value = strings.NewReplacer("/", "", "{", "", "}", "", "...", "").Replace("r" + path)
	c := Charge{Limit: Text{Value: "api"}}
	for _, key := range keys {
		c.Key = append(c.Key, Text{Value: key})
	}
	d.Limits = []Charge{c}
	return d
}

// TestEncodedSlashes pass where a rule allows them, as a part of their segment, and where no earlier rule is for the
// path that a server serves which decodes them.
func TestEncodedSlashes(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{Rules: []Definition{
		ruled(t, "/projects/secret/admin", false, "text:admin"), ruled(t, "/projects/{id}", true, "path:id"),
		ruled(t, "/files/{rest...}", true, "path:rest"), ruled(t, "/", false, "ip"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]string{
		"/projects/a":              "rprojectsid:a",
		"/projects/a%2Fb":          "rprojectsid:a/b",
		"/projects/a%2fb/":         "rprojectsid:a/b",
		"/projects/@s%2fp":         "rprojectsid:@s/p",
		"/projects/a/b":            "r:192.0.2.1",
		"/files/a%2Fb/c":           "rfilesrest:a/b/c",
		"/projects/%252f":          "rprojectsid:%2f",
		"/projects/secret%2Fadmin": "decoded it is a path of rule rprojectssecretadmin",
		"/projects%2Fa":            "has an encoded slash",
		"/other%2Fa":               "a rule with encoded_slash: true allows it",
		"/projects/a%2F..%2Fb":     "is ambiguous",
		"/projects/%2e%2e%2fadmin": "is ambiguous",
	} {
		got, err := said(t, r, uri, nil)
		if errors.Is(err, headgate.ErrInvalid) && strings.Contains(err.Error(), want) {
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", uri, got, err, want)
		}
	}
	if _, err := (*Rules)(nil).Match(&Request{Path: "/a" + EncodedSlash + "b"}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without rules: %v", err)
	}
}

// TestSpellingsOfAKey: with lower and trim they are one key.
func TestSpellingsOfAKey(t *testing.T) {
	t.Parallel()
	r, err := New(&Definitions{Rules: []Definition{
		ruled(t, "/login", false, "trim lower query:email"), ruled(t, "/", false, "lower cookie:user"),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for uri, want := range map[string]string{
		"/login?email=" + url.QueryEscape(" Ann@Example.org\t"): "rlogin:ann@example.org",
		"/login?email=ann@example.org":                          "rlogin:ann@example.org",
		"/login?email=%20":                                      "is missing",
		"/":                                                     "r:bob",
	} {
		got, err := said(t, r, uri, http.Header{"Cookie": {"user=BOB; user=bob"}})
		if err != nil && strings.Contains(err.Error(), want) {
			continue
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", uri, got, err, want)
		}
	}
	for text, want := range map[string]string{"lower": "not known", "lower lower ip": "twice", "upper ip": "not known", "trim": "not known"} {
		if _, err := parseSource(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s, err := parseSource("trim lower header:x-user"); err != nil || s.String() != "lower trim header:X-User" {
		t.Errorf("%v, %v", s, err)
	}
	d := ruled(t, "/", false, "ip")
	d.Limits[0].Cost.Value = "lower header:X-Cost"
	_, err = New(&Definitions{Rules: []Definition{d}})
	if err == nil || !strings.Contains(err.Error(), "parts of a key") {
		t.Errorf("a cost in small letters: %v", err)
	}
}
