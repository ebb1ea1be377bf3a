package accesslog

import (
	"bytes"
	"errors"
	"net/netip"
)

var errNoAddress = errors.New("has no address where the client's should be: key by another field")

// clientAddress returns the address in a text, as the middleware has it: of a list, which an X-Forwarded-For leaves,
// the first, without port, brackets and zone. Anything else, such as the name of a host or the word before the address,
// is an error: it would be counted as a client.
func clientAddress(text []byte) ([]byte, error) {
	first, _, _ := bytes.Cut(text, []byte{','})
	first = bytes.TrimSpace(first)
	bare := string(first)
	a, err := netip.ParseAddr(bare)
	if err == nil && a.Zone() == "" {
		return first, nil
	}
	if err != nil {
		if ap, err := netip.ParseAddrPort(bare); err == nil {
			a = ap.Addr()
		} else if inner, ok := bytes.CutPrefix(first, []byte{'['}); ok {
			a, _ = netip.ParseAddr(string(bytes.TrimSuffix(inner, []byte{']'})))
		}
	}
	if !a.IsValid() {
		return nil, errNoAddress
	}
	return []byte(a.WithZone("").String()), nil
}
