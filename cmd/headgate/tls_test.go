package main

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
)

// newTLS returns the TLS files of a server, and the authority that has signed its certificate.
func newTLS(t *testing.T) (ours *dbtest.Authority, server dbtest.TLS) {
	t.Helper()
	ours = dbtest.NewAuthority(t)
	return ours, dbtest.TLS{Pair: ours.Issue(t, dbtest.Certificate{Hosts: []string{"127.0.0.1"}}), Only: true}
}

func TestRedisOverTLS(t *testing.T) {
	t.Parallel()
	ours, server := newTLS(t)
	overTLS(t, ours, dbtest.RedisTLS(t, server)+"?ca=")
}

func TestDatabasesOverTLS(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	ours, server := newTLS(t)
	for name, url := range map[string]string{
		"postgres": dbtest.PostgresTLS(t, server) + "?sslmode=verify-full&sslrootcert=",
		"mysql":    dbtest.MariaDBTLS(t, server) + "?ssl-ca=",
	} {
		t.Run(name, func(t *testing.T) {
			if code, _, said := inProcess(t, "migrate", "--store", url+ours.File); code != exitOK {
				t.Fatalf("%d: %s", code, said)
			}
			overTLS(t, ours, url)
		})
	}
}

// overTLS runs the command against a server that speaks only TLS: with the authority that has signed its certificate,
// and with another one.
func overTLS(t *testing.T, ours *dbtest.Authority, url string) {
	t.Helper()
	take := func(authority *dbtest.Authority) (code int, out, said string) {
		return inProcess(t, "take", "token-bucket 5/1m", "alice", "--store", url+authority.File)
	}
	if code, out, said := take(ours); code != exitOK || !strings.HasPrefix(out, "allowed") {
		t.Errorf("%d: %s %s", code, out, said)
	}
	code, out, said := take(dbtest.NewAuthority(t))
	out += said
	if code != exitError || !strings.Contains(out, "unknown authority") || strings.Contains(out, dbtest.TLSPassword) {
		t.Errorf("with another authority: %d: %s; want an error that says so, without the password", code, out)
	}
}
