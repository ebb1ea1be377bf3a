package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
)

// KeyFunc says what an incoming request is charged to. Every text can be the key: one that a store
// would not take, such as a long one, is hashed. An error that is a [*headgate.InvalidError] is the
// client's: the request is answered with status 400, and the text of the error. Any other is the
// server's: status 500, and OnError is told. Neither charges anything.
//
// KeyFuncs are safe for concurrent use.
type KeyFunc func(*http.Request) (string, error)

// ByIP charges the address that the connection comes from: an IPv4 address as it is, and an IPv6
// address by its /64 network, which is the least that a provider gives to a client. X-Forwarded-For
// never counts: behind a proxy, use [ByProxiedIP], else all clients share one key. It is an error of
// the server's if the connection has no address, as that of a Unix socket.
func ByIP(r *http.Request) (string, error) {
	return address(nil, r)
}

// ByProxiedIP is [ByIP] behind proxies. X-Forwarded-For counts only if the connection comes from one
// of the networks, and only as far as addresses of these have added to it: the client is the last
// address in it that is none of theirs. It is an error of the client's if that cannot be read. It
// panics if a prefix is the zero Prefix.
func ByProxiedIP(proxies ...netip.Prefix) KeyFunc {
	list := make(httpkey.Proxies, 0, len(proxies))
	for _, p := range proxies {
		network, err := httpkey.ParseNetwork(p.String())
		if err != nil {
			panic("httplimit: ByProxiedIP: " + err.Error())
		}
		list = append(list, network)
	}
	return func(r *http.Request) (string, error) { return address(list, r) }
}

func address(proxies httpkey.Proxies, r *http.Request) (string, error) {
	peer, err := httpkey.Proxies(nil).Client(r.RemoteAddr, nil)
	if err != nil {
		return "", fmt.Errorf("httplimit: %w", err)
	}
	if !proxies.Contain(peer) {
		return httpkey.Network(peer), nil
	}
	client, err := proxies.Before(peer, r.Header)
	if err != nil {
		return "", headgate.Invalid("address", "%v", err)
	}
	return httpkey.Network(client), nil
}

// ByHeader charges the value of a header, such as an API key. It is an error of the client's if it is
// missing or empty, or is there several times. Only a header that something before the middleware has checked names a
// client: a client that may invent values has as many keys as it likes.
func ByHeader(name string) KeyFunc {
	return func(r *http.Request) (string, error) { return single("header "+name, r.Header.Values(name)) }
}

// ByCookie charges the value of a cookie. What is said of [ByHeader] holds for it too.
func ByCookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		var values []string
		for _, c := range r.CookiesNamed(name) {
			values = append(values, c.Value)
		}
		return single("cookie "+name, values)
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
		return single("path value "+name, []string{value})
	}
}

// ByConst charges all requests to one key.
func ByConst(key string) KeyFunc {
	return func(*http.Request) (string, error) { return key, nil }
}

func single(field string, values []string) (string, error) {
	switch {
	case len(values) > 1:
		return "", &severalError{headgate.Invalid(field, "is there %d times", len(values))}
	case len(values) == 0 || values[0] == "":
		return "", headgate.Invalid(field, "is missing")
	}
	return values[0], nil
}

// severalError reports a value that is present several times. FirstOf does not go on to the next source then, because
// the handler may use one of the values.
type severalError struct{ error }

func (e *severalError) Unwrap() error { return e.error }

// Optional is a KeyFunc whose error is an empty key where it is the client's: all requests without a
// value share that key.
func Optional(key KeyFunc) KeyFunc { return FirstOf(key, ByConst("")) }

// FirstOf charges the first of the keys that can be had, such as an API key, else the address. The
// number of the KeyFunc, from 0, is part of the key, so that nobody can choose the key of another source:
// "0|gold" and "1|192.0.2.7". An error that is not the client's ends the search, and so does a value that is
// present several times.
func FirstOf(keys ...KeyFunc) KeyFunc {
	keys = slices.Clone(keys)
	return func(r *http.Request) (key string, err error) {
		err = headgate.Invalid("key", "there is no source of one")
		for i, by := range keys {
			if key, err = by(r); err == nil {
				return httpkey.Join(strconv.Itoa(i), key), nil
			}
			if _, several := errors.AsType[*severalError](err); several || !clients(err) {
				break
			}
		}
		return "", err
	}
}

// JoinKeys charges the combination of several keys, such as a customer and a path value. Equal keys are made only
// of equal parts. A combination that is longer than a key may be is hashed.
func JoinKeys(keys ...KeyFunc) KeyFunc {
	keys = slices.Clone(keys)
	return func(r *http.Request) (string, error) {
		parts := make([]string, len(keys))
		for i, by := range keys {
			var err error
			if parts[i], err = by(r); err != nil {
				return "", err
			}
		}
		return httpkey.Join(parts...), nil
	}
}
