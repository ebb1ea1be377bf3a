// Package httpkey derives the keys and costs of charges from HTTP requests, for the middleware and for
// the server's rules, and keys from gRPC calls.
package httpkey

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/headgate/headgate/law"
)

// SharedBits is the length of the IPv6 network that is taken for one client: a provider gives at least a
// whole /64 network to each client, so a client has 2^64 addresses.
const SharedBits = 64

// ParseIP parses the key source ip of a rule or a query: ip, or ip/BITS for another length of IPv6 networks, from 33 to
// 128, such as ip/56. ok is false for other sources.
func ParseIP(text string) (bits int, ok bool, err error) {
	word, length, found := strings.Cut(text, "/")
	if word != "ip" {
		return 0, false, nil
	}
	if !found {
		return SharedBits, true, nil
	}
	bits, err = ParseBits(length)
	return bits, true, err
}

// ParseBits parses the length of the IPv6 networks that are keys.
func ParseBits(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil && validBits(n) {
		return n, nil
	}
	return 0, fmt.Errorf("%.20q: the length of a network is from 33 to 128, as in ip/64; an IPv4 address is always a key "+
		"of its own", text)
}

// validBits reports whether IPv6 networks of a length can be keys. Networks up to /32 belong to providers.
func validBits(bits int) bool { return 33 <= bits && bits <= 128 }

// Embedded returns the IPv4 address that a translator or a tunnel has embedded in an IPv6 address, or a itself if there
// is none. It knows the prefixes 64:ff9b::/96 (RFC 6052), ::ffff:0:0:0/96 (RFC 2765, section 2.1), and Teredo's
// 2001::/32 (RFC 4380, section 4), which inverts the bits. Without it all hosts behind one translator would share
// a /64 network. A mapped address (::ffff:0:0/96) is the IPv4 address itself. Do not use it to decide whom to trust:
// an embedded address can be forged.
func Embedded(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	embedded := [4]byte(b[12:])
	switch {
	case nat64Prefix.Contains(a), siitPrefix.Contains(a):
	case teredoPrefix.Contains(a):
		for i := range embedded {
			embedded[i] = ^embedded[i]
		}
	default:
		return a
	}
	return netip.AddrFrom4(embedded)
}

var (
	nat64Prefix  = netip.MustParsePrefix("64:ff9b::/96")
	siitPrefix   = netip.MustParsePrefix("::ffff:0:0:0/96")
	teredoPrefix = netip.MustParsePrefix("2001::/32")
)

// NetworkOf returns the key of an address: an IPv4 address as it is, also if it is [Embedded] in IPv6, and for another
// IPv6 address its network of bits, of which 128 is the address itself. The zone is left out. The key of the zero
// Addr is "".
func NetworkOf(a netip.Addr, bits int) string {
	a = Embedded(a)
	switch {
	case !a.IsValid():
		return ""
	case a.Is4() || bits == a.BitLen():
		return a.String()
	}
	network, err := a.Prefix(bits)
	if err != nil { // impossible: the address has 128 bits
		return a.String()
	}
	return network.String()
}

// separator stands between the parts of a compound key, and escape before either of them in a part.
const (
	separator = "|"
	escape    = `\`
)

var partEscaper = strings.NewReplacer(escape, escape+escape, separator, escape+separator)

// Join returns one key for all parts. Lists of the same length make the same key only if they are equal. A single part
// is its own key. A text that cannot be a key, mostly since it is longer than [law.MaxKey], is hashed with SHA-256.
func Join(parts ...string) string {
	switch len(parts) {
	case 0:
		return ""
	case 1:
		return keyOrHash(parts[0])
	}
	var b strings.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString(separator)
		}
		_, _ = partEscaper.WriteString(&b, part) // cannot fail
	}
	return keyOrHash(b.String())
}

// DeriveKey returns a second key for a key; use names its purpose. No client can choose the result: Join hashes every
// text that has the prefix of a hash, and the text that DeriveKey hashes is one that Join would not hash.
func DeriveKey(key, use string) string { return hash(use + " of " + hash(key)) }

// keyOrHash returns a text as it is if it can be a key, else its hash. A text with the prefix of hashes
// is hashed too, so that no client can choose the key of another text.
func keyOrHash(key string) string {
	if law.ValidKey(key) == nil && !strings.HasPrefix(key, hashPrefix) {
		return key
	}
	return hash(key)
}

// hash returns the key of a text that is hashed.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + base64.RawURLEncoding.EncodeToString(sum[:])
}

// hashPrefix begins the keys that are hashes.
const hashPrefix = "sha256:"
