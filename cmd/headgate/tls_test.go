package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// newTLS returns the TLS files of a server that speaks only TLS, and the authority that has signed its certificate.
func newTLS(t *testing.T) (authority *dbtest.Authority, files dbtest.TLS) {
	t.Helper()
	authority = dbtest.NewAuthority(t)
	return authority, dbtest.TLS{Pair: authority.Issue(t, dbtest.Certificate{Hosts: []string{"127.0.0.1"}}), Only: true}
}

func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	authority, files := newTLS(t)
	checkTakeOverTLS(t, authority, dbtest.RedisTLS(t, files)+"?ca=")
}

func TestDatabasesOverTLS(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	authority, files := newTLS(t)
	for name, url := range map[string]string{
		"postgres": dbtest.PostgresTLS(t, files) + "?sslmode=verify-full&sslrootcert=",
		"mysql":    dbtest.MariaDBTLS(t, files) + "?ssl-ca=",
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, stderr := runArgs(t, "migrate", "--store", url+authority.File); code != exitOK {
				t.Fatalf("%d: %s", code, stderr)
			}
			checkTakeOverTLS(t, authority, url)
		})
	}
}

// checkTakeOverTLS takes from a server that speaks only TLS: with the authority that has signed its certificate, and
// with another authority, which must fail.
func checkTakeOverTLS(t *testing.T, authority *dbtest.Authority, url string) {
	t.Helper()
	take := func(trusted *dbtest.Authority) (code int, out, stderr string) {
		return runArgs(t, "take", "token-bucket 5/1m", "alice", "--store", url+trusted.File)
	}
	if code, out, stderr := take(authority); code != exitOK || !strings.HasPrefix(out, "allowed") {
		t.Errorf("with its authority: %d: %s %s; want an admission", code, out, stderr)
	}
	code, out, stderr := take(dbtest.NewAuthority(t))
	out += stderr
	if code != exitError || !strings.Contains(out, "unknown authority") || strings.Contains(out, dbtest.TLSPassword) {
		t.Errorf("with another authority: %d: %s; want an error that says so, without the password", code, out)
	}
}
