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

// at is an address as its text.
type at string

func (at) Network() string  { return "tcp" }
func (a at) String() string { return string(a) }

func TestKeys(t *testing.T) {
	t.Parallel()
	const theirs, ours = "the client's", "the server's" // errors
	behind := grpclimit.ByProxiedPeer(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/16"))
	key, user := grpclimit.ByMetadata("Api-Key"), grpclimit.ByMetadata("user")
	first := grpclimit.FirstOf(key, grpclimit.ByPeer)
	both := grpclimit.JoinKeys(key, grpclimit.ByMethod)
	const forwarded = "x-forwarded-for"
	for i, tt := range []struct {
		by   grpclimit.KeyFunc
		peer string
		sent []string // names and values
		want string
	}{
		{grpclimit.ByPeer, "192.0.2.7:1", []string{forwarded, "203.0.113.9"}, "192.0.2.7"},
		{grpclimit.ByPeer, "[2001:db8:1:2:3::4]:1", nil, "2001:db8:1:2::/64"},
		{grpclimit.ByPeer, "[2001:db8:1:2:9::9]:2", nil, "2001:db8:1:2::/64"},
		{grpclimit.ByPeer, "[::ffff:192.0.2.7]:1", nil, "192.0.2.7"},
		{grpclimit.ByPeer, "@", nil, ours},
		{grpclimit.ByPeer, "", nil, ours},
		{behind, "192.0.2.7:1", []string{forwarded, "203.0.113.9"}, "192.0.2.7"}, // it is no proxy
		{behind, "10.0.0.1:1", []string{forwarded, "203.0.113.9"}, "203.0.113.9"},
		{behind, "[fd00::1]:1", []string{forwarded, "6.6.6.6, 2001:db8::1, 10.9.9.9"}, "2001:db8::/64"},
		{behind, "10.0.0.1:1", []string{forwarded, "6.6.6.6", forwarded, "203.0.113.9"}, "203.0.113.9"},
		{behind, "10.0.0.1:1", []string{forwarded, "nonsense"}, theirs},
		{behind, "10.0.0.1:1", nil, "10.0.0.1"},
		{behind, "", nil, ours},
		{key, "", []string{"api-key", "a"}, "a"},
		{key, "", []string{"api-key", ""}, theirs},
		{key, "", []string{"api-key", "a", "api-key", "b"}, theirs},
		{key, "", nil, theirs},
		{grpclimit.ByMethod, "", nil, unary},
		{grpclimit.ByConst("x"), "", nil, "x"},
		{grpclimit.ByTarget, "192.0.2.7:1", nil, ours},
		{grpclimit.Optional(key), "", nil, "1|"},
		{grpclimit.Optional(key), "", []string{"api-key", "a"}, "0|a"},
		{first, "192.0.2.7:1", []string{"api-key", "a"}, "0|a"},
		{first, "192.0.2.7:1", nil, "1|192.0.2.7"},
		{first, "192.0.2.7:1", []string{"api-key", "a", "api-key", "b"}, theirs},
		{grpclimit.FirstOf(grpclimit.ByPeer, key), "@", []string{"api-key", "a"}, ours},
		{grpclimit.FirstOf(), "", nil, theirs},
		{both, "", []string{"api-key", "a|b"}, `a\|b|` + unary},
		{grpclimit.JoinKeys(key, user), "", []string{"api-key", "a"}, theirs},
	} {
		ctx := t.Context()
		if tt.peer != "" {
			ctx = peer.NewContext(ctx, &peer.Peer{Addr: at(tt.peer)})
		}
		got, err := tt.by(&grpclimit.Call{Context: ctx, Method: unary, Metadata: metadata.Pairs(tt.sent...)})
		if err != nil {
			got = ours
			if errors.Is(err, headgate.ErrInvalid) {
				got = theirs
			}
		}
		if got != tt.want {
			t.Errorf("%d: %q (%v), want %q", i, got, err, tt.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("ByProxiedPeer takes the zero Prefix")
		}
	}()
	grpclimit.ByProxiedPeer(netip.Prefix{})
}

// TestALongKeyIsHashed: what a store would not take as a key limits all the same.
func TestALongKeyIsHashed(t *testing.T) {
	t.Parallel()
	l, limit := memoryLimiter(), headgate.MustParse("fixed-window 1/1h from-first")
	f := (&far{}).start(t, limited(must(t, l, grpclimit.ServerConfig{
		Charges: charges(grpclimit.Charge{Limit: limit, Key: grpclimit.ByMetadata("api-key")}),
	})))
	for _, key := range []string{strings.Repeat("a", 600), strings.Repeat("b", 600)} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "api-key", key)
		if _, _, err := f.call(ctx); err != nil {
			t.Error(err)
		}
		if _, _, err := f.call(ctx); !strings.Contains(err.Error(), "Quota exceeded") {
			t.Error(err)
		}
	}
}

// TestASocketWithoutAddressIsAFaultOfTheServer, as a Unix socket is.
func TestASocketWithoutAddressIsAFaultOfTheServer(t *testing.T) {
	t.Parallel()
	ctx := peer.NewContext(context.Background(), &peer.Peer{Addr: &net.UnixAddr{Name: "/run/a", Net: "unix"}})
	if key, err := grpclimit.ByPeer(&grpclimit.Call{Context: ctx}); err == nil || errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("%q, %v", key, err)
	}
}
