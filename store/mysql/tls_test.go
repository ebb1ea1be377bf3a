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

// TestTLS checks which options of the URL connect to which servers, with or without TLS, and the class and text of the
// error otherwise. No error has the password.
func TestTLS(t *testing.T) {
	tier.Engines(t)
	t.Parallel()
	authority, otherAuthority := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "mariadb", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	clientPair, strangerPair := authority.Issue(t, dbtest.Certificate{Name: "client"}),
		otherAuthority.Issue(t, dbtest.Certificate{Name: "client"})
	pairOptions := func(p dbtest.Pair) string { return "&ssl-cert=" + p.Cert + "&ssl-key=" + p.Key }
	caOption := "?ssl-ca=" + authority.File

	tlsServer := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: authority.Issue(t, host), Only: true})
	mutualServer := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: authority.Issue(t, host), Clients: authority.File})
	expiredServer := dbtest.MariaDBTLS(t, dbtest.TLS{Pair: authority.Issue(t, expired)})
	plainServer := dbtest.MariaDBTLS(t, dbtest.TLS{})
	byName := strings.Replace(tlsServer, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url  string
		class      error // nil: Open succeeds
		errText    string
		withoutTLS bool // the connection has no TLS
	}{
		{name: "the authority is named", url: tlsServer + caOption},
		{name: "the authority is named, and tls", url: tlsServer + caOption + "&tls=true"},
		{name: "skip-verify, another host name", url: byName + "?tls=skip-verify"},
		{name: "skip-verify, expired", url: expiredServer + "?tls=skip-verify"},
		{name: "skip-verify, a client certificate", url: mutualServer + "?tls=skip-verify" + pairOptions(clientPair)},
		{name: "preferred, the server has TLS", url: tlsServer + "?tls=preferred"},
		{name: "preferred, the server has no TLS", url: plainServer + "?tls=preferred", withoutTLS: true},
		{name: "no option, the server has TLS", url: expiredServer, withoutTLS: true},
		{name: "a client certificate", url: mutualServer + caOption + pairOptions(clientPair)},
		{name: "no authority", url: tlsServer + "?tls=true", class: store.ErrSetup, errText: "unknown authority"},
		{
			name: "another authority", url: tlsServer + "?ssl-ca=" + otherAuthority.File, class: store.ErrSetup,
			errText: "unknown authority",
		},
		{name: "another host name", url: byName + caOption, class: store.ErrSetup, errText: "localhost"},
		{name: "expired", url: expiredServer + caOption, class: store.ErrSetup, errText: "expired"},
		{name: "no client certificate", url: mutualServer + caOption, class: store.ErrSetup, errText: "Access denied"},
		{name: "a server without TLS", url: plainServer + caOption, class: store.ErrSetup, errText: "does not support TLS"},
		{
			name: "a server without TLS, skip-verify", url: plainServer + "?tls=skip-verify", class: store.ErrSetup,
			errText: "does not support TLS",
		},
		{name: "no TLS to a server that demands it", url: tlsServer, class: store.ErrSetup, errText: ""},
		{name: "no file of the authority", url: tlsServer + caOption + ".missing", class: store.ErrSetup, errText: "URL: ssl-ca: "},
		{
			name: "a file without certificates", url: tlsServer + "?ssl-ca=" + clientPair.Key, class: store.ErrSetup,
			errText: "URL: ssl-ca: ",
		},
		{
			name: "no file of the key", url: tlsServer + caOption + pairOptions(clientPair) + ".missing", class: store.ErrSetup,
			errText: "URL: ssl-cert, ssl-key: ",
		},
		{
			name: "another certificate's key", url: tlsServer + caOption + "&ssl-cert=" + clientPair.Cert + "&ssl-key=" + strangerPair.Key,
			class: store.ErrSetup, errText: "URL: ssl-cert, ssl-key: ",
		},
		{
			name: "a certificate without its key", url: tlsServer + caOption + "&ssl-cert=" + clientPair.Cert, class: store.ErrInvalid,
			errText: "URL: ssl-cert and ssl-key",
		},
		{
			name: "an authority that is not used", url: tlsServer + caOption + "&tls=skip-verify", class: store.ErrInvalid,
			errText: "URL: tls=skip-verify",
		},
		{
			name: "an authority without TLS", url: tlsServer + caOption + "&tls=false", class: store.ErrInvalid,
			errText: "URL: tls=false",
		},
		{
			name: "an authority that is used only if the server has TLS", url: tlsServer + caOption + "&tls=preferred", class: store.ErrInvalid,
			errText: "URL: tls=preferred",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := mysql.Open(context.Background(), tt.url, nil)
			if err == nil {
				expectCharge(t, s)
				if cipher, err := s.Cipher(); err != nil || (cipher == "") != tt.withoutTLS {
					t.Errorf("got cipher %q, %v; want none: %v", cipher, err, tt.withoutTLS)
				}
				s.Close()
			}
			if text := fmt.Sprint(err); !errors.Is(err, tt.class) || tt.class != nil &&
				!strings.Contains(text, tt.errText) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("got %v, want %v with %q, and no password", err, tt.class, tt.errText)
			}
		})
	}
	t.Run("a client certificate of another authority", func(t *testing.T) {
		// The client may get an alert, or the end of the connection first.
		for range 20 {
			_, err := mysql.Open(context.Background(), mutualServer+caOption+pairOptions(strangerPair), nil)
			if !errors.Is(err, store.ErrSetup) && !errors.Is(err, store.ErrUnavailable) ||
				!strings.Contains(err.Error(), "certificate") {
				t.Fatalf("got %v, want an error that names the certificate", err)
			}
		}
	})
}

// expectCharge migrates, and checks that a charge is granted.
func expectCharge(t *testing.T, s *mysql.Store) {
	t.Helper()
	if _, err := s.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	p := law.Params{Kind: law.Bucket, Unit: 1000, Capacity: 10_000_000, Step: 3_600_000_000, Drain: 10_000}
	outs := make([]law.Outcome, 1)
	op := law.Op{Verb: law.Take, Cell: law.Cell{Limit: "tls", Key: "k"}, Params: p, Cost: p.Unit, Count: 1}
	if err := s.Apply(context.Background(), []law.Op{op}, outs); err != nil || outs[0].Granted != 1 {
		t.Errorf("got %+v, %v; want 1 granted", outs[0], err)
	}
}
