package httplimit

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/headgate/headgate/internal/httpkey"
)

// KeyFunc returns the key that an incoming request is charged to. Every text is a valid key: a text that a
// store would reject, such as a long one, is hashed. A [*headgate.InvalidError] is an error of the
// client's: the request is answered with status 400, and the text of the error. Any other error is the
// server's: the answer has status 500, and OnError is called. In both cases nothing is charged.
//
// KeyFuncs are safe for concurrent use.
type KeyFunc func(*http.Request) (string, error)

// ByIP charges the address that the connection comes from: an IPv4 address as it is, and an IPv6
// address by its /64 network, which is the smallest that a provider gives to a client. X-Forwarded-For
// is never read: behind a proxy, use [ByProxiedIP], or all clients share one key. It is an error of
// the server's if the connection has no address, as with a Unix socket.
func ByIP(r *http.Request) (string, error) { return peerNetworks.Key(r.RemoteAddr, nil) }

var peerNetworks = httpkey.NewNetworks("httplimit", httpkey.SharedBits, nil)

// ByProxiedIP finds the client behind proxies. X-Forwarded-For counts only if the connection comes from one
// of the networks. The client is then the last address in the header that is in none of them. A malformed address is
// an error of the client's. ByProxiedIP panics if a prefix is the zero Prefix.
func ByProxiedIP(proxies ...netip.Prefix) KeyFunc { return ByNetwork(httpkey.SharedBits, proxies...) }

// ByNetwork finds the client as [ByProxiedIP] does, and charges its network. bits is the length of IPv6 networks: 56 or
// 48 where a provider gives those to its customers, 128 for the address itself. Bits below 33 or above 128 panic.
func ByNetwork(bits int, proxies ...netip.Prefix) KeyFunc {
	n := httpkey.NewNetworks("httplimit", bits, proxies)
	return func(r *http.Request) (string, error) { return n.Key(r.RemoteAddr, r.Header) }
}

// ByHeader charges the value of a header, such as an API key. It is an error of the client's if the header is
// missing, empty, or repeated. Use a header that is authenticated before the middleware: a client that may
// invent values has as many keys as it likes.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return httpkey.Single("header "+name, r.Header.Values(name)) }
}

// ByCookie charges the value of a cookie, which needs authentication as with [ByHeader]. It is an error of the
// client's if the cookie is missing or empty, or has several values. A browser sends a cookie once for each path and
// domain that it was set for, so equal values count as one, also with blanks, quotes or percent-encoding.
func ByCookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		values, err := httpkey.Cookies(r.Header, name)
		if err != nil {
			return "", err
		}
		return httpkey.Single("cookie "+name, values)
	}
}

// ByPathValue charges the value of a wildcard in the pattern that matched the request, see [http.Request.PathValue]. So
// the middleware has to wrap the handler of the pattern, not the router. It is an error of the client's if the value is
// empty, and an error of the server's if the request was not routed.
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
func ByConst(key string) KeyFunc { return func(*http.Request) (string, error) { return key, nil } }

// Optional returns a KeyFunc with an empty key instead of an error of the client's: all requests without a value
// share the empty key.
func Optional(key KeyFunc) KeyFunc { return FirstOf(key, ByConst("")) }

// FirstOf charges the first key that a request has, such as an API key, else the address. The index of the KeyFunc,
// from 0, is part of the key, so that no client can choose the key of another source: "0|gold" and "1|192.0.2.7". An
// error that is not the client's ends the search, and so does a repeated value.
func FirstOf(keys ...KeyFunc) KeyFunc { return httpkey.FirstOf(slices.Clone(keys)) }

// JoinKeys charges the combination of several keys, such as a customer and a path value. Different parts never make
// equal keys. A combination that is too long for a key is hashed.
func JoinKeys(keys ...KeyFunc) KeyFunc { return httpkey.JoinKeys(slices.Clone(keys)) }
