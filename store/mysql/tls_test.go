package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/internal/testing/tier"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/mysql"
)

func TestTLS(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	ours, other := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "mariadb", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	client, stranger := ours.Issue(t, dbtest.Certificate{Name: "client"}),
		other.Issue(t, dbtest.Certificate{Name: "client"})
	pair := func(p dbtest.Pair) string { return "&ssl-cert=" + p.Cert + "&ssl-key=" + p.Key }
	ca := "?ssl-ca=" + ours.File

	open := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: ours.Issue(t, host), Only: true})
	strict := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: ours.Issue(t, host), Clients: ours.File})
	old := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: ours.Issue(t, expired)})
	plain := dbtest.MariaDBTLS(t, dbtest.TLS{})
	byName := strings.Replace(open, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url string
		class     error // nil: it works
		says      string
		clear     bool // it works without TLS
	}{
		{name: "the authority is named", url: open + ca},
		{name: "the authority is named, and tls", url: open + ca + "&tls=true"},
		{name: "skip-verify, another host name", url: byName + "?tls=skip-verify"},
		{name: "skip-verify, expired", url: old + "?tls=skip-verify"},
		{name: "skip-verify, a client certificate", url: strict + "?tls=skip-verify" + pair(client)},
		{name: "preferred, the server has TLS", url: open + "?tls=preferred"},
		{name: "preferred, the server has no TLS", url: plain + "?tls=preferred", clear: true},
		{name: "no option, the server has TLS", url: old, clear: true},
		{name: "a client certificate", url: strict + ca + pair(client)},
		{name: "no authority", url: open + "?tls=true", class: store.ErrSetup, says: "unknown authority"},
		{
			name: "another authority", url: open + "?ssl-ca=" + other.File, class: store.ErrSetup,
			says: "unknown authority",
		},
		{name: "another host name", url: byName + ca, class: store.ErrSetup, says: "localhost"},
		{name: "expired", url: old + ca, class: store.ErrSetup, says: "expired"},
		{name: "no client certificate", url: strict + ca, class: store.ErrSetup, says: "Access denied"},
		{name: "a server without TLS", url: plain + ca, class: store.ErrSetup, says: "does not support TLS"},
		{
			name: "a server without TLS, skip-verify", url: plain + "?tls=skip-verify", class: store.ErrSetup,
			says: "does not support TLS",
		},
		{name: "no TLS to a server that demands it", url: open, class: store.ErrSetup, says: ""},
		{name: "no file of the authority", url: open + ca + ".missing", class: store.ErrSetup, says: "URL: ssl-ca: "},
		{
			name: "a file without certificates", url: open + "?ssl-ca=" + client.Key, class: store.ErrSetup,
			says: "URL: ssl-ca: ",
		},
		{
			name: "no file of the key", url: open + ca + pair(client) + ".missing", class: store.ErrSetup,
			says: "URL: ssl-cert, ssl-key: ",
		},
		{
			name: "another certificate's key", url: open + ca + "&ssl-cert=" + client.Cert + "&ssl-key=" + stranger.Key,
			class: store.ErrSetup, says: "URL: ssl-cert, ssl-key: ",
		},
		{
			name: "a certificate without its key", url: open + ca + "&ssl-cert=" + client.Cert, class: store.ErrInvalid,
			says: "URL: ssl-cert and ssl-key",
		},
		{
			name: "an authority that is not asked", url: open + ca + "&tls=skip-verify", class: store.ErrInvalid,
			says: "URL: tls=skip-verify",
		},
		{
			name: "an authority without TLS", url: open + ca + "&tls=false", class: store.ErrInvalid,
			says: "URL: tls=false",
		},
		{
			name: "an authority that may be passed over", url: open + ca + "&tls=preferred", class: store.ErrInvalid,
			says: "URL: tls=preferred",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := mysql.Open(context.Background(), tt.url, nil)
			if err == nil {
				takeSecurely(t, s)
				if cipher, err := s.Cipher(); err != nil || (cipher == "") != tt.clear {
					t.Errorf("cipher %q, %v", cipher, err)
				}
				s.Close()
			}
			if text := fmt.Sprint(err); !errors.Is(err, tt.class) || tt.class != nil &&
				!strings.Contains(text, tt.says) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("%v; want %v that says %q, and no password", err, tt.class, tt.says)
			}
		})
	}
	t.Run("a client certificate of another authority", func(t *testing.T) {
		// The server ends the connection, and the client may learn by that, or by an alert before.
		for range 20 {
			_, err := mysql.Open(context.Background(), strict+ca+pair(stranger), nil)
			if !errors.Is(err, store.ErrSetup) && !errors.Is(err, store.ErrUnavailable) ||
				!strings.Contains(err.Error(), "certificate") {
				t.Fatalf("%v; want an error that names the certificate", err)
			}
		}
	})
}

func takeSecurely(t *testing.T, s *mysql.Store) {
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
