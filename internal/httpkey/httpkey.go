// Package httpkey makes keys and costs of limits out of HTTP requests, for the middleware and for
// the server's rules, and keys out of calls of gRPC.
package httpkey

import (
	"crypto/sha256"
	"encoding/base64"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/law"
)

// sharedBits is how much of an IPv6 address belongs to one client: a provider gives at least a
// whole /64 network to each, so a client has 2^64 addresses.
const sharedBits = 64

// Network returns the text by which an address is a key: an IPv4 address as it is, also one that is
// mapped into IPv6, and of an IPv6 address its /64 network. The zone is left out. The zero Addr is "".
func Network(a netip.Addr) string { return NetworkOf(a, sharedBits) }

// NetworkOf is Network with another length for the networks of IPv6: up to 128, which is the address itself.
func NetworkOf(a netip.Addr, bits int) string {
	a = a.Unmap().WithZone("")
	switch {
	case !a.IsValid():
		return ""
	case a.Is4() || bits == a.BitLen():
		return a.String()
	}
	network, err := a.Prefix(bits)
	if err != nil { // it has 128 bits, so this cannot be
		return a.String()
	}
	return network.String()
}

// separator stands between the parts of a compound key, and escape before either of them in a part.
const (
	separator = "|"
	escape    = `\`
)

var escaped = strings.NewReplacer(escape, escape+escape, separator, escape+separator)

// Join returns the key that stands for all parts. Lists of the same length make the same key only if
// they are equal. A single part is its own key. What cannot be a key, mostly since it would be
// longer than [law.MaxKey], is hashed with SHA-256.
func Join(parts ...string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return fit(parts[0])
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString(separator)
		}
		_, _ = escaped.WriteString(&b, part) // which cannot fail
	}
	return fit(b.String())
}

// Derived returns a second key for key, to be used for use. No client can choose it: Join hashes every text that has
// the prefix of a hash, and the text that Derived hashes is one that Join would not hash.
func Derived(key, use string) string { return hash(use + " of " + hash(key)) }

// fit returns a text as it is if it can be a key, else a hash of it. A text that begins as hashes do
// is hashed too, so that nobody can choose the key of another text.
func fit(key string) string {
	if law.ValidKey(key) == nil && !strings.HasPrefix(key, hashed) {
		return key
	}
	return hash(key)
}

// hash returns the key that stands for a text.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashed + base64.RawURLEncoding.EncodeToString(sum[:])
}

// hashed begins the keys that are hashes.
const hashed = "sha256:"
