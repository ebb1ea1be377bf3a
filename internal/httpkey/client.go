package httpkey

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/law"
)

// Proxies are networks of proxies whose X-Forwarded-For is trusted. The zero
// value has none. Proxies are safe for concurrent use while nobody changes them.
type Proxies []netip.Prefix

// ParseProxies parses networks such as 10.0.0.0/8 and single addresses.
func ParseProxies(list ...string) (Proxies, error) {
	proxies := make(Proxies, 0, len(list))
	for _, text := range list {
		network, err := parseNetwork(text)
		if err != nil {
			return nil, err
		}
		proxies = append(proxies, network)
	}
	return proxies, nil
}

// parseNetwork parses a network such as 10.0.0.0/8, or a single address.
func parseNetwork(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%.100q is neither an address nor a network such as 10.0.0.0/8", text)
	}
	if a := network.Addr(); a.Is4In6() { // a v4 network written as ::ffff:10.0.0.0/104
		if network.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("%.100q holds more than the IPv4 addresses that it names", text)
		}
		network = netip.PrefixFrom(a.Unmap(), network.Bits()-96)
	}
	return network.Masked(), nil
}

// Networks turns the addresses of clients into keys. It is safe for concurrent use.
type Networks struct {
	packageName string
	bits        int
	proxies     Proxies
}

// NewNetworks returns a Networks for clients behind proxies, with IPv6 networks of bits. packageName is the package
// that errors name. It panics if bits is not from 33 to 128, or a proxy is the zero Prefix.
func NewNetworks(packageName string, bits int, proxies []netip.Prefix) *Networks {
	if !validBits(bits) {
		panic(packageName + ": ByNetwork: the length of a network is from 33 to 128")
	}
	n := &Networks{packageName: packageName, bits: bits}
	for _, p := range proxies {
		network, err := parseNetwork(p.String())
		if err != nil {
			panic(packageName + ": a proxy: " + err.Error())
		}
		n.proxies = append(n.proxies, network)
	}
	return n
}

// Key returns the key of the client of a request. It is an error of the client's if X-Forwarded-For cannot be read.
func (n *Networks) Key(remoteAddr string, h http.Header) (string, error) {
	client, err := Proxies(nil).Client(remoteAddr, nil)
	if err != nil {
		return "", fmt.Errorf("%s: %w", n.packageName, err)
	}
	if n.proxies.Contain(client) {
		client, err = n.proxies.ForwardedClient(client, h)
	}
	if err != nil {
		return "", law.Invalid("address", "%s: %v", Forwarded, err)
	}
	return NetworkOf(client, n.bits), nil
}

// Contain reports whether an address is in one of the networks.
func (p Proxies) Contain(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// Forwarded is the header to which each proxy appends the address of its own client.
const Forwarded = "X-Forwarded-For"

// maxHops is how many addresses of X-Forwarded-For are read; more are an error.
const maxHops = 100

// Client returns the address of the client of a request that came from remoteAddr, such as [http.Request.RemoteAddr].
// X-Forwarded-For counts only if remoteAddr is one of the proxies: then the client is the last address in the header
// that is not a proxy, since each proxy appends the address of its client, and the addresses before may be forged by
// the client. If all are proxies, the first is the client.
//
// A malformed address is an error: a proxy that appends one cannot be trusted.
func (p Proxies) Client(remoteAddr string, h http.Header) (netip.Addr, error) {
	client, err := parseHop(remoteAddr)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("remote address: %w", err)
	}
	if !p.Contain(client) {
		return client, nil
	}
	return p.ForwardedClient(client, h)
}

// ForwardedClient returns the last address in X-Forwarded-For that is not a proxy. If all are proxies, it is the first;
// without addresses in the header it is client. Unlike Client it trusts the peer whatever its address, which is for
// peers without an address, such as those of a Unix socket.
func (p Proxies) ForwardedClient(client netip.Addr, h http.Header) (netip.Addr, error) {
	hops := 0
	lines := h[Forwarded]
	for i := len(lines) - 1; i >= 0; i-- {
		rest, more := lines[i], true
		for more {
			var hop string
			rest, hop, more = cutLast(rest)
			if hop = strings.TrimSpace(hop); hop == "" {
				continue
			}
			if hops++; hops > maxHops {
				return netip.Addr{}, fmt.Errorf("more than %d addresses", maxHops)
			}
			a, err := parseHop(hop)
			if err != nil {
				return netip.Addr{}, err
			}
			if client = a; !p.Contain(a) {
				return client, nil
			}
		}
	}
	return client, nil
}

// cutLast splits a list at its last comma.
func cutLast(list string) (rest, last string, more bool) {
	if i := strings.LastIndexByte(list, ','); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return "", list, false
}

// parseHop parses an address, with or without a port and brackets.
func parseHop(text string) (netip.Addr, error) {
	if ap, err := netip.ParseAddrPort(text); err == nil {
		return ap.Addr().Unmap().WithZone(""), nil
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if a, err := netip.ParseAddr(bare); err == nil {
		return a.Unmap().WithZone(""), nil
	}
	return netip.Addr{}, fmt.Errorf("%.100q is not an address", text)
}
