package grpclimit

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/internal/httpkey"
)

// KeyFunc returns the key that a call is charged to. Every text is a valid key: a text that a store would reject, such
// as a long one, is hashed. A [*headgate.InvalidError] is an error of the client's: the call ends with INVALID_ARGUMENT
// and the text of the error. Any other error is the server's: the call ends with INTERNAL, and OnError is called. In
// both cases nothing is charged.
//
// KeyFuncs are safe for concurrent use.
type KeyFunc func(*Call) (string, error)

// ByPeer charges the address that the connection of an incoming call comes from: an IPv4 address as it is, and an
// IPv6 address by its /64 network, which is the smallest that a provider gives to a client. The metadata
// x-forwarded-for is never read: behind a proxy, use [ByProxiedPeer], or all clients share one key. It is an error
// of the server's if the connection has no such address, as with a Unix socket.
func ByPeer(c *Call) (string, error) { return networkKey(peerNetworks, c) }

var peerNetworks = httpkey.NewNetworks("grpclimit", httpkey.SharedBits, nil)

// ByProxiedPeer finds the peer behind proxies. The metadata x-forwarded-for counts only if the connection comes from
// one of the networks. The client is then the last address in the field that is in none of them. A malformed address
// is an error of the client's. ByProxiedPeer panics if a prefix is the zero Prefix.
func ByProxiedPeer(proxies ...netip.Prefix) KeyFunc { return ByNetwork(httpkey.SharedBits, proxies...) }

// ByNetwork finds the peer as [ByProxiedPeer] does, and charges its network. bits is the length of IPv6 networks: 56 or
// 48 where a provider gives those to its customers, 128 for the address itself. Bits below 33 or above 128 panic.
func ByNetwork(bits int, proxies ...netip.Prefix) KeyFunc {
	n := httpkey.NewNetworks("grpclimit", bits, proxies)
	return func(c *Call) (string, error) { return networkKey(n, c) }
}

func networkKey(n *httpkey.Networks, c *Call) (string, error) {
	p, ok := peer.FromContext(c.Context)
	if !ok || p.Addr == nil {
		return "", errors.New("grpclimit: the call has no peer: it is not an incoming call")
	}
	return n.Key(p.Addr.String(), http.Header{httpkey.Forwarded: c.Metadata.Get(httpkey.Forwarded)})
}

// ByMetadata charges a value of the metadata that the client sends, such as an API key. The name is not case sensitive.
// It is an error of the client's if the value is missing, empty, or repeated. Use a value that is authenticated before
// the interceptor: a client that may invent values has as many keys as it likes.
func ByMetadata(name string) KeyFunc {
	return func(c *Call) (string, error) {
		return httpkey.Single("metadata "+strings.ToLower(name), c.Metadata.Get(name))
	}
}

// ByMethod charges the full name of the method, such as "/pkg.Service/Method". All clients share the key.
func ByMethod(c *Call) (string, error) { return c.Method, nil }

// ByTarget charges the target of the connection of an outgoing call, such as "dns:///api.example.com:443". The target
// is the text that was passed to [grpc.NewClient], so programs that share a limit have to spell it alike. It is an
// error of the server's if the call is an incoming one.
//
// [grpc.NewClient]: https://pkg.go.dev/google.golang.org/grpc#NewClient
func ByTarget(c *Call) (string, error) {
	if c.Target == "" {
		return "", errors.New("grpclimit: the call has no target: it is not an outgoing call")
	}
	return c.Target, nil
}

// ByConst charges all calls to one key.
func ByConst(key string) KeyFunc { return func(*Call) (string, error) { return key, nil } }

// Optional returns a KeyFunc with an empty key instead of an error of the client's: all calls without a value share
// the empty key.
func Optional(key KeyFunc) KeyFunc { return FirstOf(key, ByConst("")) }

// FirstOf charges the first key that a call has, such as an API key, else the address. The index of the
// KeyFunc, from 0, is part of the key, so that no client can choose the key of another source: "0|gold" and
// "1|192.0.2.7". An error that is not the client's ends the search, and so does a repeated value.
func FirstOf(keys ...KeyFunc) KeyFunc { return httpkey.FirstOf(slices.Clone(keys)) }

// JoinKeys charges the combination of several keys, such as a customer and a method. Different parts never make
// equal keys. A combination that is too long for a key is hashed.
func JoinKeys(keys ...KeyFunc) KeyFunc { return httpkey.JoinKeys(slices.Clone(keys)) }
