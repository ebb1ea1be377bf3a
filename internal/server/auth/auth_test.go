package auth_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/testing/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestCheckLimit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		patterns, limit string
		want            bool
	}{
		{"", "anything", true}, // no patterns: all limits
		{"api", "api", true},
		{"api", "api2", false},
		{"api", "ap", false},
		{"api*", "api", true},
		{"api*", "api.v1", true},
		{"api*", "xapi", false},
		{"*", "", true},
		{"*", "token-bucket 5/1m", true},
		{"*.write", "orders.write", true},
		{"*.write", "orders.writes", false},
		{"*.write", ".write", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "axxbyyc", true},
		{"a*b*c", "acb", false},
		{"a*b*c", "abcb", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a**a", "aa", true},
		{"token-bucket 5/1m", "token-bucket 5/1m", true},
		{"login,api*", "api.x", true},
		{"login,api*", "logins", false},
	} {
		c := &auth.Caller{Name: "x", Role: auth.RoleTake}
		if tt.patterns != "" {
			c.Limits = strings.Split(tt.patterns, ",")
		}
		err := c.CheckLimit(tt.limit)
		if (err == nil) != tt.want || err != nil && !errors.Is(err, auth.ErrForbidden) {
			t.Errorf("%q, %q: got %v, want permitted: %v", tt.patterns, tt.limit, err, tt.want)
		}
	}
}

func TestCheckRole(t *testing.T) {
	t.Parallel()
	roles := []auth.Role{auth.Anyone, auth.RoleTake, auth.RoleRead, auth.RoleAdmin}
	roleNames := map[auth.Role]string{
		auth.RoleTake: "anyone take", auth.RoleRead: "anyone read", auth.RoleAdmin: "anyone take read admin",
	}
	for role, names := range roleNames {
		c := &auth.Caller{Name: "x", Role: role}
		for _, needed := range roles {
			err := c.CheckRole(needed)
			if want := strings.Contains(names, needed.String()); (err == nil) != want {
				t.Errorf("%s needs %s: got %v, want permitted: %v", role, needed, err, want)
			}
		}
	}
	var nobody *auth.Caller
	if nobody.CheckRole(auth.RoleAdmin) != nil || nobody.CheckLimit("x") != nil || !nobody.AllLimits() ||
		nobody.ID("i") != "i" {
		t.Error("without access control not everything is permitted")
	}
}

func TestIDsOfCallersAreApart(t *testing.T) {
	t.Parallel()
	a, b := &auth.Caller{Name: "a"}, &auth.Caller{Name: "a.b"}
	if a.ID("x") == b.ID("x") || a.ID("x") == "x" || a.ID("") != "" {
		t.Errorf("got %q, %q, %q, want two different ids and \"\"", a.ID("x"), b.ID("x"), a.ID(""))
	}
	ctx := auth.WithCaller(context.Background(), a)
	if auth.CallerOf(ctx) != a || auth.CallerOf(context.Background()) != nil ||
		auth.CallerOf(auth.WithCaller(context.Background(), nil)) != nil {
		t.Error("a context does not keep its caller")
	}
}

// hash is the hash of no token that a test has.
const hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{ // part of the error; "" if the file is valid
		"": "", "callers: []": "", "# a comment": "",
		"callers: [{name: a, role: take, hashes: [" + hash + "]}]":                "",
		"callers: [{name: a, role: read, certificates: [x]}]":                     "",
		"callers: [{name: a, role: admin, limits: ['a*'], certificates: [x, y]}]": "",
		"callers: [{role: take, hashes: [" + hash + "]}]":                         "callers[0]: name",
		"callers: [{name: A, role: take, hashes: [" + hash + "]}]":                "name: must be",
		"callers: [{name: a/b, role: take, hashes: [" + hash + "]}]":              "name: must be",
		"callers: [{name: a, hashes: [" + hash + "]}]":                            `role "" is not known`,
		"callers: [{name: a, role: root, hashes: [" + hash + "]}]":                `role "root" is not known`,
		"callers: [{name: a, role: take}]":                                        "hashes: are missing",
		"callers: [{name: a, role: take, hashes: [hgt_secret]}]":                  "a token itself does not belong",
		"callers: [{name: a, role: take, hashes: ['sha256:00']}]":                 "sha256:HEX",
		"callers: [{name: a, role: take, hashes: [" + hash + ", " + hash + "]}]":  "said twice",
		"callers: [{name: a, role: take, limits: [''], hashes: [" + hash + "]}]":  "limits: one of them is empty",
		"callers: [{name: a, role: take, certificates: ['']}]":                    "is empty",
		"callers: [{name: a, role: take, certificates: [x]}, {name: a, role: take, certificates: [y]}]": `callers[1] ("a"): ` +
			"name: is said twice",
		"callers: [{name: a, role: take, certificates: [x]}, {name: b, role: take, certificates: [x]}]": "said twice",
		"callers: [{name: a, rol: take}]": "line 1: field rol not found",
		"caller: []":                      "field caller not found",
		"callers: 5":                      "line 1: did not expect",
		"callers: [":                      "line 1: did not find",
		"callers: []\n---\ncallers: []":   "more than one document",
	} {
		_, err := auth.Parse("f.yaml", []byte(text))
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: got %v, want no error", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f.yaml: ")):
			t.Errorf("%q: got %v, want %q", text, err, want)
		case err != nil && (strings.Contains(err.Error(), "hgt_secret") || strings.Contains(err.Error(), "auth.")):
			t.Errorf("%q: %v contains a token or a name of Go", text, err)
		}
	}
}

func TestTokensAndCertificates(t *testing.T) {
	t.Parallel()
	token1, token2, unknownToken := auth.NewToken(), auth.NewToken(), auth.NewToken()
	if token1 == token2 || len(token1) < 40 {
		t.Fatalf("tokens: %q, %q", token1, token2)
	}
	text, err := auth.FileText([]auth.Entry{
		{Name: "a", Role: "take", Limits: []string{"x*"}, Hashes: []string{auth.Hash(token1), auth.Hash(token2)}},
		{Name: "b", Role: "admin", Certificates: []string{"spiffe://example/b", "b.example", "client b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), token1) {
		t.Errorf("the file holds a token:\n%s", text)
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := auth.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	tokens := f.Tokens()
	for _, token := range []string{token1, token2} {
		c := tokens.CallerByToken(token)
		if c == nil || c.Name != "a" || c.Role != auth.RoleTake || c.CheckLimit("y") == nil {
			t.Errorf("a token of a: got the caller %+v", c)
		}
	}
	for _, token := range []string{unknownToken, "", auth.Hash(token1), token1[:len(token1)-1], token1 + " "} {
		if c := tokens.CallerByToken(token); c != nil {
			t.Errorf("%q is the token of %s", token, c)
		}
	}
	spiffe, _ := url.Parse("spiffe://example/b")
	for name, cert := range map[string]*x509.Certificate{
		"uri": {URIs: []*url.URL{spiffe}}, "dns": {DNSNames: []string{"a.example", "b.example"}},
		"name": {Subject: pkix.Name{CommonName: "client b"}},
	} {
		if c := tokens.CallerByCertificate(cert); c == nil || c.Name != "b" || !c.AllLimits() {
			t.Errorf("%s: got the caller %+v, want b, which may touch all limits", name, c)
		}
	}
	if c := tokens.CallerByCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: "b"}}); c != nil {
		t.Errorf("a certificate that is not listed is %s", c)
	}

	// Reload of an invalid file keeps the former tokens.
	if err := os.WriteFile(path, []byte("callers: [{name: a, role: root}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err == nil || f.Tokens().CallerByToken(token1) == nil {
		t.Errorf("after an invalid file: %v, want an error and the former tokens", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err != nil || f.Tokens().CallerByToken(token1) != nil {
		t.Errorf("after an empty file: %v, want no error and no tokens", err)
	}
	if _, err := auth.Open(path + ".none"); err == nil {
		t.Error("a file that does not exist was opened")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("callers: [{name: a, role: take, limits: ['a*'], hashes: [" + hash + "]}]"))
	f.Add([]byte("callers: &a [{name: a}]\nx: *a"))
	f.Fuzz(func(t *testing.T, text []byte) {
		tokens, err := auth.Parse("f", text)
		if err != nil {
			return
		}
		rewritten, err := auth.FileText(tokens.Entries())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := auth.Parse("again", rewritten); err != nil {
			t.Errorf("%q is written as %q, which is an error: %v", text, rewritten, err)
		}
	})
}
