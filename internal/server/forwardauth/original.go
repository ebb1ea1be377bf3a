package forwardauth

import (
	"cmp"
	"net/http"
	"net/netip"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/httpkey"
	"github.com/headgate/headgate/internal/server/auth"
	"github.com/headgate/headgate/internal/server/edge"
	"github.com/headgate/headgate/internal/server/rules"
)

// proxied are the names of the headers of an original request, in canonical form. Traefik and
// Caddy send the first of each; the second is what nginx is mostly configured to send.
var proxied = struct{ method, uri, host [2]string }{
	[2]string{"X-Forwarded-Method", "X-Original-Method"},
	[2]string{"X-Forwarded-Uri", "X-Original-Uri"},
	[2]string{"X-Forwarded-Host", "X-Original-Host"},
}

// fromPage reports whether a web page could have made a browser send this request without a
// preflight, which this server does not answer: then it is not a proxy's.
func fromPage(h http.Header) bool {
	return len(h[proxied.uri[0]]) == 0 && len(h[proxied.uri[1]]) == 0 && len(h[auth.TokenHeader]) == 0
}

// said returns the value of one of two headers. A proxy sets one of them, and an end user may
// send the other through it: where they differ, nobody knows which is the proxy's.
func said(h http.Header, names [2]string) (string, error) {
	var value string
	found := false
	for _, name := range names {
		for _, v := range h[name] {
			if found && v != value {
				return "", headgate.Invalid(name, "says something else than another such header does; the proxy must "+
					"set one and remove the end user's %s and %s", names[0], names[1])
			}
			value, found = v, true
		}
	}
	if value == "" {
		return "", headgate.Invalid(names[0], "is missing; the proxy must set it, or %s", names[1])
	}
	return value, nil
}

// original returns the request that a proxy asks about. Errors are headgate.ErrInvalid and name the
// header. With the error of a target that servers interpret differently, the rest of the request is returned.
func (h *Handler) original(r *http.Request) (*rules.Request, error) {
	client, noClient := h.client(r)
	method, noMethod := said(r.Header, proxied.method)
	host, noHost := said(r.Header, proxied.host)
	uri, noURI := said(r.Header, proxied.uri)
	if err := cmp.Or(noClient, noMethod, noHost, noURI); err != nil {
		return nil, err
	}
	target, err := rules.ParseTarget(proxied.uri[0], uri)
	return &rules.Request{
		Header: r.Header, Client: client, Method: method, Host: host, Path: target.Path, Query: target.Query,
	}, err
}

// client returns the address of the end user.
func (h *Handler) client(r *http.Request) (a netip.Addr, err error) {
	if !h.listed(r) {
		return a, headgate.Invalid("address", "%.100s is not listed as a proxy, so that what it says of its clients "+
			"does not count; list it with --proxy", r.RemoteAddr)
	}
	// The peer is a proxy, so the client is who stands in the header and in no case the peer.
	a, err = h.config.Proxies.Before(netip.Addr{}, r.Header)
	switch {
	case err != nil:
		return a, headgate.Invalid(httpkey.Forwarded, "%v", err)
	case !a.IsValid():
		return a, headgate.Invalid(httpkey.Forwarded, "is missing; the proxy must set it to the address of its client")
	}
	return a, nil
}

// listed reports whether what a peer says about its client counts. On a Unix socket the
// permissions of the file say who may connect.
func (h *Handler) listed(r *http.Request) bool {
	if edge.OnUnixSocket(r) {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && h.config.Proxies.Contain(peer.Addr())
}
