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

// KeyFunc says what a call is charged to. Every text can be the key: one that a store would not take, such as a long
// one, is hashed. An error that is a [*headgate.InvalidError] is the client's: the call ends with INVALID_ARGUMENT,
// and the text of the error. Any other is the server's: INTERNAL, and OnError is called. Neither charges anything.
//
// KeyFuncs are safe for concurrent use.
type KeyFunc func(*Call) (string, error)

// ByPeer charges the address that the connection of an incoming call comes from: an IPv4 address as it is, and an
// IPv6 address by its /64 network, which is the least that a provider gives to a client. The metadata
// x-forwarded-for never counts: behind a proxy, use [ByProxiedPeer], else all clients share one key. It is an error
// of the server's if the connection has no such address, as that of a Unix socket.
func ByPeer(c *Call) (string, error) { return network(peers, c) }

var peers = httpkey.NewNetworks("grpclimit", httpkey.SharedBits, nil)

// ByProxiedPeer finds the peer behind proxies. The metadata x-forwarded-for counts only if the connection comes from
// one of the networks. The client is then its last address that is in none of them. A malformed address is an error
// of the client. ByProxiedPeer panics if a prefix is the zero Prefix.
func ByProxiedPeer(proxies ...netip.Prefix) KeyFunc {
	return ByNetwork(httpkey.SharedBits, proxies...)
}

// ByNetwork sets the length of IPv6 networks of [ByProxiedPeer], such as 56 or 48 where a provider gives those to its
// customers, or 128, which is the address itself. It panics if the length is not from 33 to 128.
func ByNetwork(bits int, proxies ...netip.Prefix) KeyFunc {
	n := httpkey.NewNetworks("grpclimit", bits, proxies)
	return func(c *Call) (string, error) { return network(n, c) }
}

func network(n *httpkey.Networks, c *Call) (string, error) {
	from, ok := peer.FromContext(c.Context)
	if !ok || from.Addr == nil {
		return "", errors.New("grpclimit: the call has no peer: it is not an incoming call")
	}
	return n.Key(from.Addr.String(), http.Header{httpkey.Forwarded: c.Metadata.Get(httpkey.Forwarded)})
}

// ByMetadata charges a value of the metadata that the client sends, such as an API key. The name is that of the field
// in any case. It is an error of the client's if the value is missing or empty, or is there several times. Only a
// value that something before the interceptor has checked names a client: a client that may invent values has as many
// keys as it likes.
func ByMetadata(name string) KeyFunc {
	return func(c *Call) (string, error) {
		return httpkey.Single("metadata "+strings.ToLower(name), c.Metadata.Get(name))
	}
}

// ByMethod charges the full name of the method, such as "/pkg.Service/Method". All clients share that key.
func ByMethod(c *Call) (string, error) { return c.Method, nil }

// ByTarget charges what the connection of an outgoing call was made for, such as "dns:///api.example.com:443". It is
// the text that [grpc.NewClient] got, so programs that share a limit have to write it alike. It is an error of the
// server's if the call is an incoming one.
//
// [grpc.NewClient]: https://pkg.go.dev/google.golang.org/grpc#NewClient
func ByTarget(c *Call) (string, error) {
	if c.Target == "" {
		return "", errors.New("grpclimit: the call has no target: it is not an outgoing call")
	}
	return c.Target, nil
}

// ByConst charges all calls to one key.
func ByConst(key string) KeyFunc {
	return func(*Call) (string, error) { return key, nil }
}

// Optional returns a KeyFunc whose error is an empty key where it is the client's: all calls without a value share that
// key.
func Optional(key KeyFunc) KeyFunc { return FirstOf(key, ByConst("")) }

// FirstOf charges the first of the keys that can be had, such as an API key, else the address. The number of the
// KeyFunc, from 0, is part of the key, so that nobody can choose the key of another source: "0|gold" and
// "1|192.0.2.7". An error that is not the client's ends the search, and so does a value that is present several
// times.
func FirstOf(keys ...KeyFunc) KeyFunc { return httpkey.FirstOf(slices.Clone(keys)) }

// JoinKeys charges the combination of several keys, such as a customer and a method. Equal keys are made only of
// equal parts. A combination that is longer than a key may be is hashed.
func JoinKeys(keys ...KeyFunc) KeyFunc { return httpkey.JoinKeys(slices.Clone(keys)) }
