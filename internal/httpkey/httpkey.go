// Package httpkey makes keys and costs of limits out of HTTP requests, for the middleware and for
// the server's rules, and keys out of calls of gRPC.
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

// SharedBits is how much of an IPv6 address belongs to one client: a provider gives at least a
// whole /64 network to each, so a client has 2^64 addresses.
const SharedBits = 64

// ParseIP reads how a rule or a query says that the address of the client is a key: ip, or ip/BITS for another length
// of the networks of IPv6, from 33 to 128, such as ip/56. ok is false for a text that says another thing.
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

// ParseBits reads the length of a network of IPv6 that is a key.
func ParseBits(text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil && validBits(n) {
		return n, nil
	}
	return 0, fmt.Errorf("%.20q: the length of a network is from 33 to 128, as in ip/64; an IPv4 address is always a key "+
		"of its own", text)
}

// validBits reports whether networks of a length can be keys. Up to /32 is given to providers.
func validBits(bits int) bool { return 33 <= bits && bits <= 128 }

// Embedded returns the IPv4 address of a host that was reached through IPv6, or a itself. The host is known by
// the address that a translator or a tunnel has put in: of the well-known prefix 64:ff9b::/96 (RFC 6052), of
// ::ffff:0:0:0/96 (RFC 2765, section 2.1), and of Teredo's 2001::/32 (RFC 4380, section 4), which has it inverted.
// Otherwise all hosts behind one translator would share a /64 network. A mapped address (::ffff:0:0/96) is the IPv4
// address itself. Lists of addresses that are trusted must not go by it: what is embedded can be forged.
func Embedded(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() {
		return a
	}
	b := a.As16()
	last := [4]byte(b[12:])
	switch {
	case translated.Contains(a), siit.Contains(a):
	case teredo.Contains(a):
		for i := range last {
			last[i] = ^last[i]
		}
	default:
		return a
	}
	return netip.AddrFrom4(last)
}

var (
	translated = netip.MustParsePrefix("64:ff9b::/96")
	siit       = netip.MustParsePrefix("::ffff:0:0:0/96")
	teredo     = netip.MustParsePrefix("2001::/32")
)

// NetworkOf returns the text by which an address is a key: an IPv4 address as it is, also one that is [Embedded] in
// IPv6, and of another IPv6 address its network of a length, of which 128 is the address itself. The zone is left out.
// The zero Addr is "".
func NetworkOf(a netip.Addr, bits int) string {
	a = Embedded(a)
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
