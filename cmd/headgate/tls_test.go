package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/dbtest"
)

// TestStoresOverTLS runs the command against servers that speak TLS: with the
// authority that has signed their certificate, and with another one.
func TestStoresOverTLS(t *testing.T) {
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	ours, other := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	server := dbtest.TLS{Pair: ours.Issue(t, dbtest.Certificate{Hosts: []string{"127.0.0.1"}}), Only: true}
	for _, tt := range []struct {
		name, url, authority string
		migrate              bool
	}{
		{"postgres", dbtest.PostgresTLS(t, server), "?sslmode=verify-full&sslrootcert=", true},
		{"mysql", dbtest.MariaDBTLS(t, server), "?ssl-ca=", true},
		{"redis", dbtest.RedisTLS(t, server), "?ca=", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			headgate := func(authority string, args ...string) (string, error) {
				cmd := exec.Command(bin, append(args, "--store", tt.url+tt.authority+authority)...)
				cmd.Dir = t.TempDir()
				out, err := cmd.CombinedOutput()
				return string(out), err
			}
			if tt.migrate {
				if out, err := headgate(ours.File, "migrate"); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
			}
			if out, err := headgate(ours.File, "take", "token-bucket 5/1m", "alice"); err != nil ||
				!strings.HasPrefix(out, "allowed") {
				t.Errorf("%v: %s", err, out)
			}
			out, err := headgate(other.File, "take", "token-bucket 5/1m", "alice")
			if err == nil || !strings.Contains(out, "unknown authority") || strings.Contains(out, dbtest.TLSPassword) {
				t.Errorf("with another authority: %v: %s; want an error that says so, without the password", err, out)
			}
		})
	}
}
