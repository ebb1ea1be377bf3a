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

// originalHeaders are the headers that describe the original request, in canonical form. Traefik and Caddy send the
// first of each pair; nginx is mostly configured to send the second.
var originalHeaders = struct{ method, uri, host [2]string }{
	[2]string{"X-Forwarded-Method", "X-Original-Method"},
	[2]string{"X-Forwarded-Uri", "X-Original-Uri"},
	[2]string{"X-Forwarded-Host", "X-Original-Host"},
}

// mayBeFromPage reports whether a web page can make a browser send a request with these headers: those tested here a
// browser sends only after a preflight, which this server does not answer.
func mayBeFromPage(h http.Header) bool {
	return len(h[originalHeaders.uri[0]]) == 0 && len(h[originalHeaders.uri[1]]) == 0 && len(h[auth.TokenHeader]) == 0
}

// headerValue returns the value of one of two headers. A proxy sets one of them, and may pass on the other from an end
// user: if they differ, it is unknown which of them the proxy has set, and that is an error.
func headerValue(h http.Header, names [2]string) (string, error) {
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

// originalRequest returns the request of the end user. Errors are headgate.ErrInvalid and name the header. If only the
// target of the request cannot be used, it returns the error and the rest of the request.
func (h *Handler) originalRequest(r *http.Request) (*rules.Request, error) {
	client, noClient := h.client(r)
	method, noMethod := headerValue(r.Header, originalHeaders.method)
	host, noHost := headerValue(r.Header, originalHeaders.host)
	uri, noURI := headerValue(r.Header, originalHeaders.uri)
	if err := cmp.Or(noClient, noMethod, noHost, noURI); err != nil {
		return nil, err
	}
	target, err := rules.ParseTarget(originalHeaders.uri[0], uri)
	return &rules.Request{
		Header: r.Header, Client: client, Method: method, Host: host, Path: target.Path, Query: target.Query,
	}, err
}

func (h *Handler) client(r *http.Request) (a netip.Addr, err error) {
	if !h.isTrustedProxy(r) {
		return a, headgate.Invalid("address", "%.100s is not listed as a proxy, so that what it says of its clients "+
			"does not count; list it with --proxy", r.RemoteAddr)
	}
	// The peer is a proxy, so the client is in the header, and never the peer itself.
	a, err = h.config.Proxies.ForwardedClient(netip.Addr{}, r.Header)
	switch {
	case err != nil:
		return a, headgate.Invalid(httpkey.Forwarded, "%v", err)
	case !a.IsValid():
		return a, headgate.Invalid(httpkey.Forwarded, "is missing; the proxy must set it to the address of its client")
	}
	return a, nil
}

// isTrustedProxy reports whether the peer is a listed proxy. On a Unix socket every peer is trusted, since the
// permissions of the file decide who may connect.
func (h *Handler) isTrustedProxy(r *http.Request) bool {
	if edge.OnUnixSocket(r) {
		return true
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && h.config.Proxies.Contain(peer.Addr())
}
