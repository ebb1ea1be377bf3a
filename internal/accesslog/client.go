package accesslog

import (
	"errors"
	"net/http"
	"net/netip"

	"github.com/headgate/headgate/internal/httpkey"
)

var errNoAddress = errors.New("has no address where the client's should be: key by another field")

// private are the networks of hosts within a site.
var private, _ = httpkey.ParseProxies("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "fc00::/7", "::1")

// clientAddress returns the client in a text that is an address, or a list of them as X-Forwarded-For is. Anything
// else, such as the name of a host or the word before the address, is an error: it would be counted as a client.
func clientAddress(text []byte, proxies httpkey.Proxies) ([]byte, error) {
	if a, err := netip.ParseAddr(string(text)); err == nil && a.Is4() {
		return text, nil
	}
	client, err := proxies.Before(netip.Addr{}, http.Header{httpkey.Forwarded: {string(text)}})
	if err != nil || !client.IsValid() {
		return nil, errNoAddress
	}
	return []byte(client.String()), nil
}
