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
	ours, other := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "redis", Hosts: []string{"127.0.0.1"}}
	expired := host
	expired.Expired = true
	client, stranger := ours.Issue(t, dbtest.Certificate{Name: "client"}),
		other.Issue(t, dbtest.Certificate{Name: "client"})
	ca, cert, strange := "?ca="+ours.File, "&cert="+client.Cert+"&key="+client.Key, "&cert="+stranger.Cert+"&key="+
		stranger.Key

	open := dbtest.RedisTLS(t, dbtest.TLS{Pair: ours.Issue(t, host)})
	strict := dbtest.RedisTLS(t, dbtest.TLS{Pair: ours.Issue(t, host), Clients: ours.File})
	old := dbtest.RedisTLS(t, dbtest.TLS{Pair: ours.Issue(t, expired)})
	plain := dbtest.RedisTLS(t, dbtest.TLS{})
	byName := strings.Replace(open, "127.0.0.1", "localhost", 1)
	for _, tt := range []struct {
		name, url string
		class     error  // nil: the connection works
		says      string // a part of the error
	}{
		{"the authority is named", open + ca, nil, ""},
		{"redis:// with tls=true", strings.Replace(open, "rediss:", "redis:", 1) + ca + "&tls=true", nil, ""},
		{"insecure", open + "?insecure=true", nil, ""},
		{"insecure, another host name", byName + "?insecure=true", nil, ""},
		{"insecure, expired", old + "?insecure=true", nil, ""},
		{"a client certificate", strict + ca + cert, nil, ""},
		{"no authority", open, store.ErrSetup, "unknown authority"},
		{"another authority", open + "?ca=" + other.File, store.ErrSetup, "unknown authority"},
		{"another host name", byName + ca, store.ErrSetup, "localhost"},
		{"expired", old + ca, store.ErrSetup, "expired"},
		{"no client certificate", strict + ca, store.ErrSetup, "certificate required"},
		{"no client certificate, insecure", strict + "?insecure=true", store.ErrSetup, "certificate required"},
		{"a stranger's client certificate", strict + ca + strange, store.ErrSetup, "unknown certificate authority"},
		{"a server without TLS", plain + ca, store.ErrSetup, "does not speak TLS"},
		{
			"no TLS to a server that demands it", strings.Replace(open, "rediss:", "redis:", 1), store.ErrSetup,
			"rediss://",
		},
		{"no file of the authority", open + ca + ".missing", store.ErrSetup, "URL: ca: "},
		{"a file without certificates", open + "?ca=" + client.Key, store.ErrSetup, "URL: ca: "},
		{"no file of the key", open + ca + cert + ".missing", store.ErrSetup, "URL: cert, key: "},
		{
			"another certificate's key", open + ca + "&cert=" + client.Cert + "&key=" + stranger.Key, store.ErrSetup,
			"URL: cert, key: ",
		},
		{"a certificate without its key", open + ca + "&cert=" + client.Cert, store.ErrInvalid, "URL: cert and key"},
		{
			"an authority for redis://", strings.Replace(open, "rediss:", "redis:", 1) + ca, store.ErrInvalid,
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
				!strings.Contains(text, tt.says) || strings.Contains(text, dbtest.TLSPassword) {
				t.Errorf("%v; want %v that says %q, and no password", err, tt.class, tt.says)
			}
		})
	}
}

// TestACertificateThatIsReplaced gives the server a certificate of another authority. New connections
// fail, with an error that says that nothing was charged.
func TestACertificateThatIsReplaced(t *testing.T) {
	ours, other := dbtest.NewAuthority(t), dbtest.NewAuthority(t)
	host := dbtest.Certificate{Name: "redis", Hosts: []string{"127.0.0.1"}}
	url := dbtest.RedisTLS(t, dbtest.TLS{Pair: ours.Issue(t, host)})
	root := openTest(t, url+"?insecure=true", nil)
	s := openTest(t, url+"?ca="+ours.File, nil)
	apply(t, s, takeOne("tls", "k", hourly, 0))

	next := other.Issue(t, host)
	admin(t, root, "CONFIG", "SET", "tls-cert-file", next.Cert, "tls-key-file", next.Key)
	admin(t, root, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	outs := make([]law.Outcome, 1)
	var err error
	await.Until(t, "ErrSetup from a server with another authority's certificate", func() bool {
		err = s.Apply(context.Background(), []law.Op{takeOne("tls", "k", hourly, 0)}, outs)
		return errors.Is(err, store.ErrSetup)
	})
	if !store.NothingDone(err) || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("%v; want one that says so, and that nothing was done", err)
	}
}
