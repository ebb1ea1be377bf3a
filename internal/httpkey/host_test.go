package httpkey_test

import (
	"testing"

	"github.com/headgate/headgate/internal/httpkey"
)

func TestHostName(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"": "", "example.org": "example.org", "Example.ORG.:443": "example.org", "example.org.": "example.org",
		"127.0.0.1:80": "127.0.0.1", "[::1]:80": "::1", "[::1]": "::1", "::1": "::1", "[FE80::1]": "fe80::1",
		":80": "", "a:b:c": "a:b:c",
	} {
		if name := httpkey.HostName(host); name != want {
			t.Errorf("%q: got %q, want %q", host, name, want)
		}
	}
}
