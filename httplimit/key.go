package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/httpkey"
)

// KeyFunc says what an incoming request is charged to. Every text can be the key: one that a store
// would not take, such as a long one, is hashed. An error that is a [*headgate.InvalidError] is the
// client's: the request is answered with status 400, and the text of the error. Any other is the
// server's: status 500, and OnError is called. Neither charges anything.
//
// KeyFuncs are safe for concurrent use.
type KeyFunc func(*http.Request) (string, error)

// ByIP charges the address that the connection comes from: an IPv4 address as it is, and an IPv6
// address by its /64 network, which is the least that a provider gives to a client. X-Forwarded-For
// never counts: behind a proxy, use [ByProxiedIP], else all clients share one key. It is an error of
// the server's if the connection has no address, as that of a Unix socket.
func ByIP(r *http.Request) (string, error) { return peers.Key(r.RemoteAddr, nil) }

var peers = httpkey.NewNetworks("httplimit", httpkey.SharedBits, nil)

// ByProxiedIP finds the client behind proxies. X-Forwarded-For counts only if the connection comes from one
// of the networks. The client is then its last address that is in none of them. A malformed address is an error of
// the client. ByProxiedIP panics if a prefix is the zero Prefix.
func ByProxiedIP(proxies ...netip.Prefix) KeyFunc {
	return ByNetwork(httpkey.SharedBits, proxies...)
}

// ByNetwork sets the length of IPv6 networks of [ByProxiedIP], such as 56 or 48 where a provider gives those to its
// customers, or 128, which is the address itself. It panics if the length is not from 33 to 128.
func ByNetwork(bits int, proxies ...netip.Prefix) KeyFunc {
	n := httpkey.NewNetworks("httplimit", bits, proxies)
	return func(r *http.Request) (string, error) { return n.Key(r.RemoteAddr, r.Header) }
}

// ByHeader charges the value of a header, such as an API key. It is an error of the client's if it is
// missing or empty, or is there several times. Only a header that something before the middleware has checked names a
// client: a client that may invent values has as many keys as it likes.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return httpkey.Single("header "+name, r.Header.Values(name)) }
}

// ByCookie charges the value of a cookie. What is said of [ByHeader] holds for it too, except that a browser sends a
// cookie of one name for each path and domain that it was set for: the same value several times counts once, also where
// it is spelled with blanks, quotes or percent-encoding.
func ByCookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		values, err := httpkey.Cookies(r.Header, name)
		if err != nil {
			return "", err
		}
		return httpkey.Single("cookie "+name, values)
	}
}

// ByPathValue charges a wildcard of the pattern that the request was routed by, see
// [http.Request.PathValue]. So the middleware has to stand behind the router, around the handler of the
// pattern. It is an error of the client's if the value is empty, and one of the server's if the request
// was not routed.
func ByPathValue(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		value := r.PathValue(name)
		if value == "" && r.Pattern == "" {
			return "", fmt.Errorf("httplimit: no path value %s: the middleware has to wrap the handler of a pattern, "+
				"not the router", name)
		}
		return httpkey.Single("path value "+name, []string{value})
	}
}

// ByConst charges all requests to one key.
func ByConst(key string) KeyFunc {
	return func(*http.Request) (string, error) { return key, nil }
}

// Optional returns a KeyFunc whose error is an empty key where it is the client's: all requests without a value share
// that key.
func Optional(key KeyFunc) KeyFunc { return FirstOf(key, ByConst("")) }

// FirstOf charges the first of the keys that can be had, such as an API key, else the address. The
// number of the KeyFunc, from 0, is part of the key, so that nobody can choose the key of another source:
// "0|gold" and "1|192.0.2.7". An error that is not the client's ends the search, and so does a value that is
// present several times.
func FirstOf(keys ...KeyFunc) KeyFunc { return httpkey.FirstOf(slices.Clone(keys)) }

// JoinKeys charges the combination of several keys, such as a customer and a path value. Equal keys are made only
// of equal parts. A combination that is longer than a key may be is hashed.
func JoinKeys(keys ...KeyFunc) KeyFunc { return httpkey.JoinKeys(slices.Clone(keys)) }
