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
func usesTLS(t *testing.T, url string) (yes bool) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(context.Background(), "select ssl from pg_stat_ssl where pid = pg_backend_pid()").Scan(
		&yes); err != nil {
		t.Fatal(err)
	}
	return yes
}

// TestTLS connects to a server that demands TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	overTLS(t, false)
}

// TestTLSOfOtherServers connects to servers without TLS, with an expired certificate, and with a request for client
// certificates.
func TestTLSOfOtherServers(t *testing.T) {
	tier.Engines(t)
	overTLS(t, true)
}

func overTLS(t *testing.T, others bool) {
	ours, other := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "postgres", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	client, stranger := ours.Issue(t, dbtest.Certificate{Name: dbtest.TLSUser}),
		other.Issue(t, dbtest.Certificate{Name: dbtest.TLSUser})
	pair := func(p dbtest.Pair) string { return "&sslcert=" + p.Cert + "&sslkey=" + p.Key }
	full, ca := "?sslmode=verify-full&sslrootcert="+ours.File, "?sslmode=verify-ca&sslrootcert="+ours.File

	open := dbtest.PostgresTLS(t, dbtest.TLS{Pair: ours.Issue(t, host), Only: true})
	strict, old, plain := "strict://", "old://", "plain://"
	if others {
		strict = dbtest.PostgresTLS(t, dbtest.TLS{Pair: ours.Issue(t, host), Clients: ours.File})
		old = dbtest.PostgresTLS(t, dbtest.TLS{Pair: ours.Issue(t, expired)})
		plain = dbtest.PostgresTLS(t, dbtest.TLS{})
	}
	byName := strings.Replace(open, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url string
		class     error // nil: the connection works
		says      string
		clear     bool // the connection works without TLS
	}{
		{name: "the authority is named", url: open + full},
		{name: "verify-ca, another host name", url: byName + ca},
		{name: "require", url: byName + "?sslmode=require"},
		{name: "require, expired", url: old + "?sslmode=require"},
		{name: "no option, the server has TLS", url: old},
		{name: "no option, the server demands TLS", url: open},
		{name: "no option, the server has no TLS", url: plain, clear: true},
		{name: "disable", url: old + "?sslmode=disable", clear: true},
		{name: "a client certificate", url: strict + full + pair(client)},
		{name: "no authority", url: open + "?sslmode=verify-full", class: store.ErrSetup, says: "unknown authority"},
		{
			name: "another authority", url: open + "?sslmode=verify-full&sslrootcert=" + other.File, class: store.ErrSetup,
			says: "unknown authority",
		},
		{
			name: "verify-ca, another authority", url: open + "?sslmode=verify-ca&sslrootcert=" + other.File,
			class: store.ErrSetup, says: "unknown authority",
		},
		{
			name: "require, another authority", url: open + "?sslmode=require&sslrootcert=" + other.File,
			class: store.ErrSetup, says: "unknown authority",
		},
		{name: "another host name", url: byName + full, class: store.ErrSetup, says: "localhost"},
		{name: "verify-ca, expired", url: old + ca, class: store.ErrSetup, says: "expired"},
		{name: "expired", url: old + full, class: store.ErrSetup, says: "expired"},
		{name: "no client certificate", url: strict + full, class: store.ErrSetup, says: "client certificate"},
		{
			name: "a stranger's client certificate", url: strict + full + pair(stranger), class: store.ErrSetup,
			says: "client certificate",
		},
		{name: "a server without TLS", url: plain + full, class: store.ErrSetup, says: "refused TLS"},
		{
			name: "require, a server without TLS", url: plain + "?sslmode=require", class: store.ErrSetup,
			says: "refused TLS",
		},
		{
			name: "no TLS to a server that demands it", url: open + "?sslmode=disable", class: store.ErrSetup,
			says: "no pg_hba.conf entry",
		},
		{name: "no file of the authority", url: open + full + ".missing", class: store.ErrSetup, says: ".missing"},
		{
			name: "a file without certificates", url: open + "?sslmode=verify-full&sslrootcert=" + client.Key,
			class: store.ErrSetup, says: "CA",
		},
		{
			name: "no file of the key", url: open + full + pair(client) + ".missing", class: store.ErrSetup,
			says: ".missing",
		},
		{
			name: "another certificate's key", url: open + full + "&sslcert=" + client.Cert + "&sslkey=" + stranger.Key,
			class: store.ErrSetup, says: "private key",
		},
		{
			name: "a certificate without its key", url: open + full + "&sslcert=" + client.Cert, class: store.ErrSetup,
			says: "sslkey",
		},
	} {
		if !others && !strings.HasPrefix(tt.url, "postgres://") {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			s, err := postgres.Open(context.Background(), tt.url, nil)
			if err == nil {
				takeSecurely(t, s)
				s.Close()
				if yes := usesTLS(t, tt.url); yes == tt.clear {
					t.Errorf("encrypted: %v", yes)
				}
			}
			if text := fmt.Sprint(err); !errors.Is(err, tt.class) || tt.class != nil &&
				!strings.Contains(text, tt.says) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("%v; want %v that says %q, and no password", err, tt.class, tt.says)
			}
		})
	}
}

func takeSecurely(t *testing.T, s *postgres.Store) {
	t.Helper()
	if _, err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000_000, Step: 3_600_000_000, Drain: 10_000}
	outs := make([]law.Outcome, 1)
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "tls", Key: "k"}, Params: p, Cost: p.Unit, Count: 1}
	if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Errorf("%+v, %v", outs[0], err)
	}
}
