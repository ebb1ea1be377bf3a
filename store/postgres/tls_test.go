package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/postgres"
)

// usesTLS reports whether the connections of a URL use TLS.
func usesTLS(t *testing.T, url string) (encrypted bool) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), "select ssl from pg_stat_ssl where pid = pg_backend_pid()").Scan(
		&encrypted); err != nil {
		t.Fatal(err)
	}
	return encrypted
}

// TestTLS runs the cases of testTLS for a server that demands TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	testTLS(t, false)
}

// TestTLSOfOtherServers also runs the cases for servers without TLS, with an expired certificate, and with a demand for
// client certificates.
func TestTLSOfOtherServers(t *testing.T) {
	tier.Engines(t)
	testTLS(t, true)
}

// testTLS opens stores with options of TLS. It checks whether a connection is encrypted, or the class of the error.
func testTLS(t *testing.T, otherServers bool) {
	authority, otherAuthority := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "postgres", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	client, otherClient := authority.Issue(t, dbtest.Certificate{Name: dbtest.TLSUser}),
		otherAuthority.Issue(t, dbtest.Certificate{Name: dbtest.TLSUser})
	clientOptions := func(p dbtest.Pair) string { return "&sslcert=" + p.Cert + "&sslkey=" + p.Key }
	verifyFull := "?sslmode=verify-full&sslrootcert=" + authority.File
	verifyCA := "?sslmode=verify-ca&sslrootcert=" + authority.File
	tlsOnly := dbtest.PostgresTLS(t, dbtest.TLS{Pair: authority.Issue(t, host), Only: true})
	clientCerts, expiredCert, noTLS := "strict://", "old://", "plain://" // no servers, their cases are skipped
	if otherServers {
		clientCerts = dbtest.PostgresTLS(t, dbtest.TLS{Pair: authority.Issue(t, host), Clients: authority.File})
		expiredCert = dbtest.PostgresTLS(t, dbtest.TLS{Pair: authority.Issue(t, expired)})
		noTLS = dbtest.PostgresTLS(t, dbtest.TLS{})
	}
	byName := strings.Replace(tlsOnly, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url   string
		class       error // nil: the connection works
		problem     string
		unencrypted bool // the connection works without TLS
	}{
		{name: "the authority is named", url: tlsOnly + verifyFull},
		{name: "verify-ca, another host name", url: byName + verifyCA},
		{name: "require", url: byName + "?sslmode=require"},
		{name: "require, expired", url: expiredCert + "?sslmode=require"},
		{name: "no option, the server has TLS", url: expiredCert},
		{name: "no option, the server demands TLS", url: tlsOnly},
		{name: "no option, the server has no TLS", url: noTLS, unencrypted: true},
		{name: "disable", url: expiredCert + "?sslmode=disable", unencrypted: true},
		{name: "a client certificate", url: clientCerts + verifyFull + clientOptions(client)},
		{name: "no authority", url: tlsOnly + "?sslmode=verify-full", class: store.ErrSetup, problem: "unknown authority"},
		{
			name: "another authority", url: tlsOnly + "?sslmode=verify-full&sslrootcert=" + otherAuthority.File,
			class: store.ErrSetup, problem: "unknown authority",
		},
		{
			name: "verify-ca, another authority", url: tlsOnly + "?sslmode=verify-ca&sslrootcert=" + otherAuthority.File,
			class: store.ErrSetup, problem: "unknown authority",
		},
		{
			name: "require, another authority", url: tlsOnly + "?sslmode=require&sslrootcert=" + otherAuthority.File,
			class: store.ErrSetup, problem: "unknown authority",
		},
		{name: "another host name", url: byName + verifyFull, class: store.ErrSetup, problem: "localhost"},
		{name: "verify-ca, expired", url: expiredCert + verifyCA, class: store.ErrSetup, problem: "expired"},
		{name: "expired", url: expiredCert + verifyFull, class: store.ErrSetup, problem: "expired"},
		{name: "no client certificate", url: clientCerts + verifyFull, class: store.ErrSetup, problem: "client certificate"},
		{
			name: "a stranger's client certificate", url: clientCerts + verifyFull + clientOptions(otherClient), class: store.ErrSetup,
			problem: "client certificate",
		},
		{name: "a server without TLS", url: noTLS + verifyFull, class: store.ErrSetup, problem: "refused TLS"},
		{
			name: "require, a server without TLS", url: noTLS + "?sslmode=require", class: store.ErrSetup,
			problem: "refused TLS",
		},
		{
			name: "no TLS to a server that demands it", url: tlsOnly + "?sslmode=disable", class: store.ErrSetup,
			problem: "no pg_hba.conf entry",
		},
		{name: "no file of the authority", url: tlsOnly + verifyFull + ".missing", class: store.ErrSetup, problem: ".missing"},
		{
			name: "a file without certificates", url: tlsOnly + "?sslmode=verify-full&sslrootcert=" + client.Key,
			class: store.ErrSetup, problem: "CA",
		},
		{
			name: "no file of the key", url: tlsOnly + verifyFull + clientOptions(client) + ".missing", class: store.ErrSetup,
			problem: ".missing",
		},
		{
			name: "another certificate's key", url: tlsOnly + verifyFull + "&sslcert=" + client.Cert + "&sslkey=" + otherClient.Key,
			class: store.ErrSetup, problem: "private key",
		},
		{
			name: "a certificate without its key", url: tlsOnly + verifyFull + "&sslcert=" + client.Cert, class: store.ErrSetup,
			problem: "sslkey",
		},
	} {
		if !otherServers && !strings.HasPrefix(tt.url, "postgres://") {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			s, err := postgres.Open(context.Background(), tt.url, nil)
			if err == nil {
				migrateAndTake(t, s)
				s.Close()
				if encrypted := usesTLS(t, tt.url); encrypted == tt.unencrypted {
					t.Errorf("got encrypted %t, want %t", encrypted, !tt.unencrypted)
				}
			}
			if text := fmt.Sprint(err); !errors.Is(err, tt.class) || tt.class != nil &&
				!strings.Contains(text, tt.problem) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("got %v, want %v with %q, and no password", err, tt.class, tt.problem)
			}
		})
	}
}

// migrateAndTake migrates and charges one unit.
func migrateAndTake(t *testing.T, s *postgres.Store) {
	t.Helper()
	if _, err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000_000, Step: 3_600_000_000, Drain: 10_000}
	outs := make([]law.Outcome, 1)
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "tls", Key: "k"}, Params: p, Cost: p.Unit, Count: 1}
	if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Errorf("Apply: got %+v, %v; want 1 granted", outs[0], err)
	}
}
