package grpclimit_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/grpclimit"
)

// textAddr is an address in text form.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func TestKeys(t *testing.T) {
	t.Parallel()
	const clientError, serverError = "the client's", "the server's"
	proxied := grpclimit.ByProxiedPeer(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16"))
	key, user := grpclimit.ByMetadata("Api-Key"), grpclimit.ByMetadata("user")
	keyOrPeer := grpclimit.FirstOf(key, grpclimit.ByPeer)
	keyAndMethod := grpclimit.JoinKeys(key, grpclimit.ByMethod)
	const forwarded = "x-forwarded-for"
	for i, tt := range []struct {
		by   grpclimit.KeyFunc
		peer string
		sent []string // names and values of metadata
		want string
	}{
		{grpclimit.ByPeer, "192.0.2.7:1", []string{forwarded, "203.0.113.9"}, "192.0.2.7"},
		{grpclimit.ByPeer, "[2001:db8:1:2:3::4]:1", nil, "2001:db8:1:2::/64"},
		{grpclimit.ByPeer, "[2001:db8:1:2:9::9]:2", nil, "2001:db8:1:2::/64"},
		{grpclimit.ByPeer, "[::ffff:192.0.2.7]:1", nil, "192.0.2.7"},
		{grpclimit.ByPeer, "@", nil, serverError},
		{grpclimit.ByPeer, "", nil, serverError},
		{proxied, "192.0.2.7:1", []string{forwarded, "203.0.113.9"}, "192.0.2.7"}, // from no proxy
		{proxied, "10.0.0.1:1", []string{forwarded, "203.0.113.9"}, "203.0.113.9"},
		{proxied, "[fd00::1]:1", []string{forwarded, "6.6.6.6, 2001:db8::1, 10.9.9.9"}, "2001:db8::/64"},
		{proxied, "10.0.0.1:1", []string{forwarded, "6.6.6.6", forwarded, "203.0.113.9"}, "203.0.113.9"},
		{proxied, "10.0.0.1:1", []string{forwarded, "nonsense"}, clientError},
		{proxied, "10.0.0.1:1", nil, "10.0.0.1"},
		{proxied, "", nil, serverError},
		{key, "", []string{"api-key", "a"}, "a"},
		{key, "", []string{"api-key", ""}, clientError},
		{key, "", []string{"api-key", "a", "api-key", "b"}, clientError},
		{key, "", nil, clientError},
		{grpclimit.ByMethod, "", nil, unary},
		{grpclimit.ByConst("x"), "", nil, "x"},
		{grpclimit.ByTarget, "192.0.2.7:1", nil, serverError},
		{grpclimit.Optional(key), "", nil, "1|"},
		{grpclimit.Optional(key), "", []string{"api-key", "a"}, "0|a"},
		{keyOrPeer, "192.0.2.7:1", []string{"api-key", "a"}, "0|a"},
		{keyOrPeer, "192.0.2.7:1", nil, "1|192.0.2.7"},
		{keyOrPeer, "192.0.2.7:1", []string{"api-key", "a", "api-key", "b"}, clientError},
		{grpclimit.FirstOf(grpclimit.ByPeer, key), "@", []string{"api-key", "a"}, serverError},
		{grpclimit.FirstOf(), "", nil, clientError},
		{keyAndMethod, "", []string{"api-key", "a|b"}, `a\|b|` + unary},
		{grpclimit.JoinKeys(key, user), "", []string{"api-key", "a"}, clientError},
	} {
		ctx := t.Context()
		if tt.peer != "" {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: textAddr(tt.peer)})
		}
		got, err := tt.by(&grpclimit.Call{Context: ctx, Method: unary, Metadata: metadata.Pairs(tt.sent...)})
		if err != nil {
			got = serverError
			if errors.Is(err, headgate.ErrInvalid) {
				got = clientError
			}
		}
		if got != tt.want {
			t.Errorf("row %d: got %q (%v), want %q", i, got, err, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("ByProxiedPeer with the zero Prefix did not panic")
		}
	}()
	grpclimit.ByProxiedPeer(netip.Prefix{})
}

// TestALongKeyIsHashed checks that keys that are too long for a store are limited, each by itself.
func TestALongKeyIsHashed(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 1/1h from-first")
	srv := startServer(t, l, grpclimit.ServerConfig{
		Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("api-key")}),
	})
	for _, key := range []string{strings.Repeat("a", 600), strings.Repeat("b", 600)} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
		if _, _, err := srv.call(ctx); err != nil {
			t.Errorf("the first call: got %v", err)
		}
		if _, _, err := srv.call(ctx); !strings.Contains(err.Error(), "Quota exceeded") {
			t.Errorf("the second call: got %v, want a refusal", err)
		}
	}
}

// TestByPeerOfAUnixSocketIsAServerError checks that ByPeer returns an error of the server's for a Unix socket.
func TestByPeerOfAUnixSocketIsAServerError(t *testing.T) {
	t.Parallel()
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.UnixAddr{Name: "/run/a", Net: "unix"}})
	if key, err := grpclimit.ByPeer(&grpclimit.Call{Context: ctx}); err == nil || errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("got %q, %v; want an error of the server's", key, err)
	}
}
