package rules

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate/headgate/internal/httpkey"
)

// normalRequest is a request in the form that conditions are compared with.
type normalRequest struct {
	*Request
	host   string     // lower case, without a port or a trailing dot
	path   string     // clean (see cleanPath), and without trailing blanks and dots, which Caddy drops
	isPath bool       // the target is a path, not the * of OPTIONS
	client netip.Addr // without a zone; IPv4 in IPv6 is IPv4

	// segments are the segments of path in lower case, since Express, ASP.NET and Caddy ignore case.
	segments []string
}

// normalize returns a request in the form in which conditions are compared with it.
func normalize(q *Request) normalRequest {
	n := normalRequest{Request: q, host: httpkey.HostName(q.Host), client: q.Client.Unmap().WithZone("")}
	n.path, n.isPath = cleanPath(q.Path)
	n.path = strings.TrimRight(n.path, "./ ")
	if n.path != "" {
		n.segments = strings.Split(strings.ToLower(n.path), "/")
	}
	return n
}

// headerCondition is a condition of a rule on a header.
type headerCondition struct {
	name   string // canonical name of the header
	value  string
	prefix bool // the header has to begin with the value, else to equal it
}

func (c *headerCondition) holds(text string) bool {
	if c.prefix {
		return strings.HasPrefix(text, c.value)
	}
	return text == c.value
}

func (r *rule) matches(n *normalRequest) bool {
	return r.matchesTarget(n) && r.unmetCondition(n) == nil
}

// matchesTarget reports whether the path, the method and the host of a request match.
func (r *rule) matchesTarget(n *normalRequest) bool {
	return r.matchesPath(n) && r.matchesMethod(n.Method) && r.matchesHost(n.host)
}

func (r *rule) matchesPath(n *normalRequest) bool {
	return r.anyPath || n.isPath && r.path.matches(n.segments)
}

// unmetCondition returns the first condition on a header that does not hold; nil: all hold.
func (r *rule) unmetCondition(n *normalRequest) *headerCondition {
	for i := range r.headers {
		if c := &r.headers[i]; !slices.ContainsFunc(n.Header[c.name], c.holds) {
			return c
		}
	}
	return nil
}

// matchesMethod reports whether a method matches. GET includes HEAD.
func (r *rule) matchesMethod(method string) bool {
	return len(r.methods) == 0 || slices.ContainsFunc(r.methods, func(m string) bool {
		return strings.EqualFold(m, method) || m == http.MethodGet && strings.EqualFold(method, http.MethodHead)
	})
}

// matchesHost reports whether a host matches, by its name or by a pattern.
func (r *rule) matchesHost(host string) bool {
	return len(r.hosts) == 0 || slices.ContainsFunc(r.hosts, func(h string) bool {
		suffix, wildcard := strings.CutPrefix(h, "*")
		return h == host || wildcard && host != "" && strings.HasSuffix(host, suffix) && len(host) > len(suffix)
	})
}

// lists has the prefixes that are allowed or blocked. The longest prefix of an address counts.
type lists map[netip.Prefix]Listed

// lookup returns how an address is listed. An IPv4 address embedded in it can block it too, but not allow it.
func (l lists) lookup(a netip.Addr) Listed {
	if len(l) == 0 || !a.IsValid() {
		return NotListed
	}
	if v4 := httpkey.Embedded(a); v4 != a && l.listedByLongestPrefix(v4) == Blocked {
		return Blocked
	}
	return l.listedByLongestPrefix(a)
}

// listedByLongestPrefix returns how the longest prefix that contains an address is listed. It tries each length: the
// 129 of IPv6 take 2.5 µs.
func (l lists) listedByLongestPrefix(a netip.Addr) Listed {
	for bits := a.BitLen(); bits >= 0; bits-- {
		p, err := a.Prefix(bits)
		if found := l[p]; err == nil && found != NotListed {
			return found
		}
	}
	return NotListed
}
