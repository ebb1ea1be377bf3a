package rules

import (
	"net/http"
	"net/netip"
	"strings"

	"github.com/headgate/headgate/internal/httpkey"
)

// asked is a request in the forms that conditions compare.
type asked struct {
	*Request
	host   string // lower case, without a port and a dot at the end
	path   string // see cleanPath; without blanks and dots at its end, which Caddy leaves out
	folded string // path in small letters, as patterns are compared with: Express, ASP.NET and Caddy ignore case
	isPath bool
	client netip.Addr
}

func ask(q *Request) asked {
	a := asked{Request: q, host: httpkey.HostName(q.Host), client: q.Client.Unmap().WithZone("")}
	a.path, a.isPath = cleanPath(q.Path)
	a.path = strings.TrimRight(a.path, "./ ")
	a.folded = strings.ToLower(a.path)
	return a
}

// comparison compares a text with a condition.
type comparison struct {
	name   string // of the header, in canonical form
	value  string
	prefix bool // the text has to begin with the value
}

func (c *comparison) holds(text string) bool {
	if c.prefix {
		return strings.HasPrefix(text, c.value)
	}
	return text == c.value
}

// String writes what the text has to be.
func (c *comparison) String() string {
	switch {
	case c.prefix && c.value == "":
		return "anything"
	case c.prefix:
		return c.value + "..."
	}
	return c.value
}

// failure is the condition of a rule that a request does not fulfil.
type failure uint8

const (
	nothing failure = iota
	byMethod
	byHost
	byHeader
)

// fails returns the first condition that does not hold, and which of its kind it is. The path is
// looked at elsewhere.
func (r *rule) fails(a *asked) (failure, int) {
	if !r.method(a.Method) {
		return byMethod, 0
	}
	if !r.host(a.host) {
		return byHost, 0
	}
	for i := range r.headers {
		if !oneHolds(&r.headers[i], a.Header) {
			return byHeader, i
		}
	}
	return nothing, 0
}

func oneHolds(c *comparison, h http.Header) bool {
	for _, value := range h[c.name] {
		if c.holds(value) {
			return true
		}
	}
	return false
}

func allHold(c *comparison, lines []string) bool {
	for _, line := range lines {
		if !c.holds(line) {
			return false
		}
	}
	return true
}

// method reports whether a rule is for a method. GET is for HEAD too.
func (r *rule) method(method string) bool {
	if len(r.methods) == 0 {
		return true
	}
	for _, m := range r.methods {
		if strings.EqualFold(m, method) || m == http.MethodGet && strings.EqualFold(method, http.MethodHead) {
			return true
		}
	}
	return false
}

// host reports whether a rule is for a host, or for all that a pattern stands for.
func (r *rule) host(host string) bool {
	if len(r.hosts) == 0 {
		return true
	}
	for _, h := range r.hosts {
		if suffix, any := strings.CutPrefix(h, "*"); h == host || any && host != "" &&
			strings.HasSuffix(host, suffix) && len(host) > len(suffix) {
			return true
		}
	}
	return false
}

// lists are addresses that pass or are refused. The longest prefix that contains an address counts.
type lists struct {
	by   map[netip.Prefix]Listed
	bits []int // lengths of prefixes, descending; those of IPv6 after 129 is added
}

// ofIPv6 is added to the length of prefixes of IPv6.
const ofIPv6 = 129

func (l *lists) add(p netip.Prefix, as Listed) {
	if l.by == nil {
		l.by = map[netip.Prefix]Listed{}
	}
	l.by[p] = max(l.by[p], as) // an address on both lists is blocked
	bits := p.Bits()
	if p.Addr().Is6() {
		bits += ofIPv6
	}
	for i, have := range l.bits {
		if have == bits {
			return
		}
		if have < bits {
			l.bits = append(l.bits[:i], append([]int{bits}, l.bits[i:]...)...)
			return
		}
	}
	l.bits = append(l.bits, bits)
}

// find returns what the lists say of an address. One is blocked also by the IPv4 address that is embedded in it, and
// allowed by itself alone.
func (l *lists) find(a netip.Addr) Listed {
	if len(l.by) == 0 || !a.IsValid() {
		return NotListed
	}
	if v4 := httpkey.Embedded(a); v4 != a && l.longest(v4) == Blocked {
		return Blocked
	}
	return l.longest(a)
}

// longest returns what the longest prefix that contains an address is listed as.
func (l *lists) longest(a netip.Addr) Listed {
	for _, bits := range l.bits {
		if (bits >= ofIPv6) != a.Is6() {
			continue
		}
		p, err := a.Prefix(bits % ofIPv6)
		if err != nil {
			continue
		}
		if found := l.by[p]; found != NotListed {
			return found
		}
	}
	return NotListed
}
