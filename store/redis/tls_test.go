package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/internal/testing/await"
	"github.com/headgate/headgate/internal/testing/dbtest"
	"github.com/headgate/headgate/law"
	"github.com/headgate/headgate/store"
)

func TestTLS(t *testing.T) {
	ownCA, otherCA := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "redis", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	client := ownCA.Issue(t, dbtest.Certificate{Name: "client"})
	stranger := otherCA.Issue(t, dbtest.Certificate{Name: "client"})
	caOption, clientOptions := "?ca="+ownCA.File, "&cert="+client.Cert+"&key="+client.Key
	strangerOptions := "&cert=" + stranger.Cert + "&key=" + stranger.Key

	tlsURL := dbtest.RedisTLS(t, dbtest.TLS{Pair: ownCA.Issue(t, host)})
	clientCertURL := dbtest.RedisTLS(t, dbtest.TLS{Pair: ownCA.Issue(t, host), Clients: ownCA.File})
	expiredURL := dbtest.RedisTLS(t, dbtest.TLS{Pair: ownCA.Issue(t, expired)})
	plaintextURL := dbtest.RedisTLS(t, dbtest.TLS{})
	otherHostURL := strings.Replace(tlsURL, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url string
		class     error  // nil: the connection works
		text      string // a part of the error
	}{
		{"the authority is named", tlsURL + caOption, nil, ""},
		{"redis:// with tls=true", strings.Replace(tlsURL, "rediss:", "redis:", 1) + caOption + "&tls=true", nil, ""},
		{"insecure", tlsURL + "?insecure=true", nil, ""},
		{"insecure, another host name", otherHostURL + "?insecure=true", nil, ""},
		{"insecure, expired", expiredURL + "?insecure=true", nil, ""},
		{"a client certificate", clientCertURL + caOption + clientOptions, nil, ""},
		{"no authority", tlsURL, store.ErrSetup, "unknown authority"},
		{"another authority", tlsURL + "?ca=" + otherCA.File, store.ErrSetup, "unknown authority"},
		{"another host name", otherHostURL + caOption, store.ErrSetup, "localhost"},
		{"expired", expiredURL + caOption, store.ErrSetup, "expired"},
		{"no client certificate", clientCertURL + caOption, store.ErrSetup, "certificate required"},
		{"no client certificate, insecure", clientCertURL + "?insecure=true", store.ErrSetup, "certificate required"},
		{"a stranger's", clientCertURL + caOption + strangerOptions, store.ErrSetup, "unknown certificate authority"},
		{"a server without TLS", plaintextURL + caOption, store.ErrSetup, "does not speak TLS"},
		{
			"no TLS to a server that demands it", strings.Replace(tlsURL, "rediss:", "redis:", 1), store.ErrSetup,
			"rediss://",
		},
		{"no file of the authority", tlsURL + caOption + ".missing", store.ErrSetup, "URL: ca: "},
		{"a file without certificates", tlsURL + "?ca=" + client.Key, store.ErrSetup, "URL: ca: "},
		{"no file of the key", tlsURL + caOption + clientOptions + ".missing", store.ErrSetup, "URL: cert, key: "},
		{
			"another certificate's key", tlsURL + caOption + "&cert=" + client.Cert + "&key=" + stranger.Key,
			store.ErrSetup, "URL: cert, key: ",
		},
		{"no key", tlsURL + caOption + "&cert=" + client.Cert, store.ErrInvalid, "URL: cert and key"},
		{
			"an authority for redis://", strings.Replace(tlsURL, "rediss:", "redis:", 1) + caOption, store.ErrInvalid,
			"rediss://",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Open(context.Background(), tt.url, nil)
			if err == nil {
				apply(t, s, takeOne("tls", "k", hourly, 0))
				s.Close()
			}
			if text := fmt.Sprint(err); !errors.Is(err, tt.class) || tt.class != nil &&
				!strings.Contains(text, tt.text) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("got %v, want %v that says %q, and no password", err, tt.class, tt.text)
			}
		})
	}
}

// TestAReplacedServerCertificateIsErrSetup gives the server a certificate of another authority. It checks that charges
// on new connections fail with an error that says that nothing was charged.
func TestAReplacedServerCertificateIsErrSetup(t *testing.T) {
	ownCA, otherCA := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "redis", Hosts: []string{"127.0.0.1"}}
	url := dbtest.RedisTLS(t, dbtest.TLS{Pair: ownCA.Issue(t, host)})
	root := openTest(t, url+"?insecure=true", nil)
	s := openTest(t, url+"?ca="+ownCA.File, nil)
	apply(t, s, takeOne("tls", "k", hourly, 0))

	replacement := otherCA.Issue(t, host)
	admin(t, root, "CONFIG", "SET", "tls-cert-file", replacement.Cert, "tls-key-file", replacement.Key)
	admin(t, root, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	outs := make([]law.Outcome, 1)
	var err error
	await.Until(t, "ErrSetup from a server with another authority's certificate", func() bool {
		err = s.Apply(context.Background(), []law.Op{takeOne("tls", "k", hourly, 0)}, outs)
		return errors.Is(err, store.ErrSetup)
	})
	if !store.NothingDone(err) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("got %v, want \"unknown authority\", and that nothing was done", err)
	}
}
