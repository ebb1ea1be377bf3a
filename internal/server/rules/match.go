package rules

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/httpkey"
)

// normalized is a request in the forms that conditions compare.
type normalized struct {
	*Request
	host   string // lower case, without a port or a trailing dot
	path   string // see cleanPath; without trailing blanks and dots, which Caddy drops
	isPath bool
	client netip.Addr

	// segments are those of path in lower case, for comparison with patterns: Express, ASP.NET and Caddy
	// ignore case.
	segments []string
}

func normalize(q *Request) normalized {
	a := normalized{Request: q, host: httpkey.HostName(q.Host), client: q.Client.Unmap().WithZone("")}
	a.path, a.isPath = cleanPath(q.Path)
	a.path = strings.TrimRight(a.path, "./ ")
	if a.path != "" {
		a.segments = strings.Split(strings.ToLower(a.path), "/")
	}
	return a
}

// comparison is a condition on a header.
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

// matches reports whether a rule matches a request.
func (r *rule) matches(a *normalized) bool { return r.aims(a) && r.missed(a) == nil }

// aims reports whether a rule is for the path, the method and the host of a request.
func (r *rule) aims(a *normalized) bool { return r.onPath(a) && r.method(a.Method) && r.host(a.host) }

// onPath reports whether a rule is for the path of a request.
func (r *rule) onPath(a *normalized) bool { return r.anyPath || a.isPath && r.path.matches(a.segments) }

// missed returns the first condition on a header that fails; nil: none does.
func (r *rule) missed(a *normalized) *comparison {
	for i := range r.headers {
		if c := &r.headers[i]; !slices.ContainsFunc(a.Header[c.name], c.holds) {
			return c
		}
	}
	return nil
}

// method reports whether a rule is for a method. GET includes HEAD.
func (r *rule) method(method string) bool {
	return len(r.methods) == 0 || slices.ContainsFunc(r.methods, func(m string) bool {
		return strings.EqualFold(m, method) || m == http.MethodGet && strings.EqualFold(method, http.MethodHead)
	})
}

// host reports whether a rule is for a host, by its name or by a pattern.
func (r *rule) host(host string) bool {
	return len(r.hosts) == 0 || slices.ContainsFunc(r.hosts, func(h string) bool {
		suffix, any := strings.CutPrefix(h, "*")
		return h == host || any && host != "" && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	})
}

// lists has addresses that pass or are refused. The longest prefix of an address counts.
type lists map[netip.Prefix]Listed

// find returns how an address is listed. It is blocked also by the IPv4 address embedded in it, but
// allowed only by itself.
func (l lists) find(a netip.Addr) Listed {
	if len(l) == 0 || !a.IsValid() {
		return NotListed
	}
	if v4 := httpkey.Embedded(a); v4 != a && l.longest(v4) == Blocked {
		return Blocked
	}
	return l.longest(a)
}

// longest returns how the longest prefix that contains an address is listed. It tries each: the 129 of IPv6
// take 2.5 µs, where there are lists at all.
func (l lists) longest(a netip.Addr) Listed {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if found := l[p]; err == nil && found != NotListed {
			return found
		}
	}
	return NotListed
}
