package rules

import (
	"cmp"
	"net/url"
	"strings"

	"github.com/headgate/headgate"
)

// Target is what the target of a request says: a path, a whole URL, or the * of OPTIONS.
type Target struct {
	Path  string // decoded once; "*" for OPTIONS
	Query string // as it was sent, without the question mark
	Host  string // empty unless the target is a whole URL
}

// ParseTarget reads the target of a request. A path that servers interpret differently is an error, since an
// application might serve it although the rule for it does not match: some servers resolve /api/..%2flogin to /login,
// others serve it below /api/. Errors are headgate.ErrInvalid and name the field.
func ParseTarget(field, uri string) (Target, error) {
	if uri == "*" {
		return Target{Path: uri}, nil
	}
	u, err := url.ParseRequestURI(uri)
	if err != nil || u.Opaque != "" {
		return Target{}, headgate.Invalid(field, "%.100q is not the path of a request", uri)
	}
	if ambiguous(u) {
		return Target{}, headgate.Invalid(field, "the path of %.100q is ambiguous: it has a segment . or .., a "+
			"backslash, or an encoded slash", uri)
	}
	return Target{Path: cmp.Or(u.Path, "/"), Query: u.RawQuery, Host: u.Host}, nil
}

// ambiguous reports whether servers interpret a path differently.
func ambiguous(u *url.URL) bool {
	if strings.Contains(u.Path, `\`) || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return true
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return true
		}
	}
	return false
}
